/*  ignis_collective.h - v0.5.0 - GPU arrays shared between processes, and collective operations between GPUs, for C and C++

    SPDX-License-Identifier: MIT
    Part of Ignis; the licence is at the end of ignis.h.

    CONTENTS. A tag marks a section of the declarations and of the implementation; in the manual it follows the topic.

        >>vmm           physical memory, address ranges, mappings, access  ON VIRTUAL MEMORY
        >>channel       messages between two processes                  ON CHANNELS
        >>transport     copies between devices and processes, by VMM, legacy IPC, peer copy or host memory
        >>share         arrays that two processes use                   ON SHARING
        >>comm          communicators and collective operations         ON COMMUNICATORS, ON RANKS THAT COME BACK, ON MODELS OF SEVERAL GPUS
        >>parallel      data-parallel training: >>parallel.tensor       ON RANKS THAT COME BACK, ON DATA-PARALLEL TRAINING, ON SHARDS

    HOW TO USE

        Copy ignis.h, ignis_kernels.h and ignis_collective.h into your project. In ONE C or C++ file:

            #define IGNIS_IMPLEMENTATION
            #include "ignis_collective.h"

        It includes ignis.h, and is built in the same way. One host of up to 8 GPUs needs no NCCL; if it is
        installed, it runs the operations that it does faster.

        Two programs that use one GPU array, without a copy. The first one:

    ---- begin example share_a
    ignis_channel_desc meet = {.name = "weights"};
    ignis_vmm_array_desc desc = {.shape = IGNIS_SHAPE(1024)};
    char word[8] = "";
    ignis_channel server = ignis_channel_serve(&meet), peer = ignis_channel_accept(server);
    ignis_array x = ignis_vmm_array(&desc);
    ignis_array_fill(x, 1);
    ignis_share_send(peer, x);
    ignis_channel_receive(peer, word, sizeof word, NULL, NULL, 0, NULL); // x has the values that the peer wrote
    ignis_array_free(x);
    ---- end example

        and the second one, at the same time:

    ---- begin example share_b
    ignis_channel_desc meet = {.name = "weights"};
    ignis_channel peer = ignis_channel_connect(&meet);
    ignis_array x = ignis_share_receive(peer); // the first one's memory
    ignis_array_scale(x, x, 3);
    ignis_synchronize();
    ignis_array_free(x);
    ignis_channel_send(peer, "done", 5, NULL, 0);
    ---- end example

    ON VIRTUAL MEMORY (>>vmm)

        ignis_vmm_array is all that most programs need: an ordinary array in memory that other devices and
        processes can be given access to. Below it, memory and addresses are separate: ignis_vmm_create
        allocates physical memory, ignis_vmm_reserve reserves a range of addresses, ignis_vmm_map maps memory at
        an offset in the range, and ignis_vmm_set_access says which device may use it. So an array can grow in
        place:

    ---- begin example vmm
    int64_t granule = ignis_vmm_granularity(0, false);
    ignis_vmm_range range = ignis_vmm_reserve(64 * granule, 0); // addresses to grow into
    ignis_vmm_desc desc = {.size = granule};
    ignis_vmm first = ignis_vmm_create(&desc), second = ignis_vmm_create(&desc);
    ignis_vmm_map(range, 0, first);
    ignis_vmm_map(range, granule, second); // it has grown
    ignis_vmm_set_access(range, 0, 2 * granule, 0, IGNIS_VMM_ACCESS_READ_WRITE);
    ignis_array_desc both = {.shape = IGNIS_SHAPE(2 * granule / 4)};
    ignis_array x = ignis_vmm_array_map(range, 0, &both);
    ignis_array_fill(x, 1);
    ignis_array_free(x);
    ignis_vmm_unmap(range, 0), ignis_vmm_unmap(range, granule);
    ignis_vmm_free(first), ignis_vmm_free(second);
    ignis_vmm_unreserve(range);
    ---- end example

        Physical memory is allocated in granules of 2 MiB and lives until its last mapping and its last handle,
        in all processes, are gone. So imported memory stays valid when the process that allocated it frees it,
        or dies.

        ignis_memory_info.vmm_bytes counts what this process has allocated in this way and still holds on a
        device: for arrays of ignis_vmm_array, for ignis_vmm_create, and for communicators. Imported memory is
        counted by the process that allocated it. ignis_desc.memory_limit does not limit it. Parameters of which
        a rank keeps a slice are counted in live_bytes and reserved_bytes instead.

    ON CHANNELS (>>channel)

        A channel carries messages of up to 64 KiB, complete and in order, between two processes of one machine
        and one user, with up to 64 file descriptors each. One process serves a name and accepts, the other
        connects; either may start first.

            IGNIS_CHANNEL_SOCKET    a Unix socket, the default; it carries descriptors, and so arrays of ignis_vmm_array
            IGNIS_CHANNEL_PIPE      two FIFOs
            IGNIS_CHANNEL_SHM       two rings in sealed shared memory, if sockets are not allowed; needs /proc

        On Windows IGNIS_CHANNEL_PIPE is a named pipe, the default and only method. It carries handles as
        descriptors: (int)(intptr_t)handle, since 32 bits of a HANDLE are significant. They arrive as handles of
        the receiving process, with the same access.

        Every call has the timeout of the desc (30 s), or that of its _within form. After IGNIS_ERROR_TIMEOUT
        the channel is usable. IGNIS_ERROR_PEER means that the peer closed the channel, died (noticed at once,
        also by kill -9), or broke the protocol: close it. Messages that it sent before are received first. The
        death of a peer is logged as an error; closing is not.

        An event loop polls ignis_channel_info.fd, and then calls with a timeout of 0 (on Windows there is no
        descriptor, so it calls at intervals):

    ---- begin example channel_loop
    ignis_channel_desc meet = {.name = "loop"};
    ignis_channel server = ignis_channel_serve(&meet), client = {0};
    ignis_channel_info info;
    char text[64];
    for (int turn = 0; turn < 10 && !client.id; turn++) {
        ignis_channel_query(server, &info); // info.fd is readable: a client has come or sent
        struct pollfd wanted = {.fd = info.fd, .events = POLLIN};
        if (poll(&wanted, 1, 100) > 0)
            client = ignis_channel_accept_within(server, 0);
    }
    if (client.id) {
        if (ignis_channel_receive_within(client, text, sizeof text, NULL, NULL, 0, NULL, 0) == IGNIS_ERROR_TIMEOUT)
            puts("no message yet");
        ignis_channel_close(client);
    }
    ignis_channel_close(server);
    ---- end example

        Access: files are in a folder of mode 0700 ($IGNIS_COMM_DIR, else $XDG_RUNTIME_DIR/ignis, else
        ignis-<uid> in the folder of temporary files); sockets, FIFOs and files have mode 0600. A folder that is
        a link, belongs to another user, or is open to others is refused. The system tells the user of a
        socket's peer. Both sides prove, by HMAC-SHA-256 of random numbers that are used once, that they know a
        token: a random one that the server writes to that folder, or the one in desc.token. The token itself is
        never sent. Other clients are refused and counted; if many connect at once, silent ones are dropped
        first. Messages are checked before any use. So a channel keeps other users out. Programs of the same
        user are trusted, as they could read each other's memory anyway. Nothing is encrypted, as nothing leaves
        the machine. Descriptors are closed on exec, and the channels of a forked child are closed at once.

        On Windows the folder is $IGNIS_COMM_DIR, else %LOCALAPPDATA%\ignis. A folder that Ignis creates is open
        to its user alone; an existing one is used as it is. The pipe is open to its user alone, too; its name
        is random, and is in the server's file in that folder. The system tells the process of the peer, and
        both prove that they know the token, as above. After that, DuplicateHandle puts handles into the peer's
        process; those that it has not taken are closed with its channel. If the peer has more rights, so that
        its process cannot be opened, sending handles fails with IO.

    ON SHARING (>>share)

        ignis_share_send gives an array one reference more, for the other process. It ends when that process
        frees its array, exits or is killed. Until then ignis_array_free and changes of the owner fail, with a
        message that names the process. The sender may close the channel right away, and may even exit.
        ignis_share_send waits for the work on the array; later work is not ordered between the processes. So
        call ignis_synchronize before telling the peer to read. Both processes must see the GPU; its ordinal may
        differ. On Windows the same works through a named pipe.

    ON COMMUNICATORS (>>job, >>comm)

        A communicator joins ranks: processes, or threads, each with a GPU of its own. All of them run the same
        program:

    ---- begin example comm
    ignis_comm_info info = {0};
    ignis_comm comm = ignis_comm_init(NULL); // waits for the others
    ignis_comm_query(comm, &info);
    ignis_device_use(info.device);
    ignis_array_desc desc = {.shape = IGNIS_SHAPE(1024)};
    ignis_array x = ignis_array_create(&desc);
    ignis_array_fill(x, info.rank + 1.0);
    ignis_comm_all_reduce(comm, x, x, IGNIS_OP_SUM);
    ignis_comm_synchronize(comm);
    ignis_array_free(x);
    ignis_comm_destroy(comm);
    ---- end example

        ON STARTING. Every launcher works that starts one process for each GPU: examples/launch.sh 4 ./program
        on one host, torchrun, mpirun, srun. The environment tells each process its rank. The first complete
        source is used; a source that contradicts it is an error that names both. ignis_comm_desc.rank and .size
        override all. Without any of them, there is one rank.

            set by          rank, size, and which GPU of the host                            IGNIS_COMM_LAUNCHER=
            Ignis           IGNIS_RANK  IGNIS_WORLD_SIZE  IGNIS_LOCAL_RANK                   ignis
            torchrun        RANK  WORLD_SIZE  LOCAL_RANK                                     torchrun
            Open MPI        OMPI_COMM_WORLD_RANK  OMPI_COMM_WORLD_SIZE  OMPI_COMM_WORLD_LOCAL_RANK          openmpi
            MPICH, Intel    PMI_RANK  PMI_SIZE  MPI_LOCALRANKID                              pmi
            Slurm           SLURM_PROCID  SLURM_NTASKS  SLURM_LOCALID                        slurm

            IGNIS_COMM_LAUNCHER     which one is used, if several are set: torchrun under srun, say
            IGNIS_COMM_DIR          one host: a folder of mode 0700 where ranks meet; other users have no access
            MASTER_ADDR             otherwise: the host of rank 0, and
            MASTER_PORT             its port; the next one if torchrun's store has it
                                    (TORCHELASTIC_USE_AGENT_STORE=True)
            IGNIS_COMM_PORT         another port
            IGNIS_COMM_TOKEN        with several hosts: a random secret, the same for all ranks, such as the output of
                                    openssl rand -hex 16. All ranks prove that they know it; it is never sent
            IGNIS_COMM_TRANSPORT    peer, staged or nccl: fail if it does not work
            IGNIS_COMM_HOST         a name for the host, if boot id and namespaces do not tell hosts apart
            IGNIS_COMM_HEARTBEAT    seconds of silence after which a rank counts as dead; equal on all ranks

        Ranks authenticate by a secret. With IGNIS_COMM_TOKEN they meet at host and port. Without it no rank
        listens at a port: all are on one host, and meet in the private folder of their user (see ON CHANNELS).
        The name there is made of host, port and the launcher's name of the job (TORCHELASTIC_RUN_ID,
        PMIX_NAMESPACE, SLURM_JOB_ID and _STEP_ID). The name of the job is enough: mpirun and srun on one host
        need no variable. A program with MPI, or another way to reach all ranks, needs none on any number of
        hosts: rank 0 calls ignis_comm_unique_id, the program sends the id to all, and each sets
        ignis_comm_desc.id. Messages between ranks are not encrypted: on networks that others can write to, use
        a tunnel.

        Rank 0 waits for the others and checks that they agree: versions, sizes, one process a rank, one GPU a
        rank. Connections of other programs, silent ones and replayed ones are closed without harm to the ranks.
        A rank that does not connect before the deadline (ignis_comm_desc.timeout_s, 30 s) is named in the error
        of every rank that did. A rank that fails earlier reports it to the others.

        How data travels is tested, not assumed: each rank maps the others' memory, writes into it and reads
        what all have written. If that fails between any two, all use pinned host memory instead;
        ignis_comm_info.reason tells why. Ranks of several hosts, or more than 8, use NCCL, which must be
        installed. It is also used on request.

        ON WINDOWS. All ranks are on one host, up to 8, as NCCL has no build for Windows. Rank 0 waits at a
        named pipe that is open to its user alone, under a name in the private folder (see ON CHANNELS), also
        with a token. An id of ignis_comm_unique_id names a pipe of this host. Ranks duplicate handles of memory
        into each other's processes, so all need the same rights: a rank that was started as administrator does
        not meet one that was not, and the call ends with TIMEOUT.

        ON SPEED. Small operations run in built-in kernels, with the fastest algorithm for the size.
        Communicators of ignis_comm_init, and those derived from them, use NCCL for large ones if it is faster
        and installed: from 64 MB on; with two ranks from larger sizes, and never for all_reduce. The ranks join
        NCCL at the first such operation, which waits for all of them on the host, once. If one rank cannot
        join, all go on without NCCL; ignis_comm_info.reason tells why. A graph uses NCCL if that was joined
        before its capture: run one such operation first. NCCL sums in another order. For sums in the order of
        the ranks at every size set IGNIS_COMM_TUNE=nccl_min=0 (never NCCL), or IGNIS_COMM_TRANSPORT=peer;
        nccl_min=64M sets another threshold. Operations of NCCL have the same deadline as others; a thread of
        Ignis watches it, and polls NCCL for errors. An error during an operation (ncclCommGetAsyncError) breaks
        the communicator on all ranks.

        ON SEVERAL COMMUNICATORS. A kernel of a large operation occupies most SMs of a GPU until all ranks have
        begun it. If one rank begins an operation on communicator X and then one on Y, and another rank first Y,
        then X, both can wait until the deadline, even on two streams. The result is TIMEOUT, with a message
        that names both communicators. So begin the operations of all communicators in the same order on all
        ranks. If a thread for each communicator makes that impossible, set ignis_comm_desc.most_blocks to the
        number of SMs (132 on an H200) divided by the number of communicators: their kernels then run at the
        same time, and large operations take longer. Operations of NCCL need one order in any case.

        WHEN A RANK DIES. The ranks of a host watch each other: a process that ends without ignis_comm_destroy,
        by kill -9 too, breaks every communicator that it was in within milliseconds, and kernels that wait for
        it return. Nothing hangs: kernels have the deadline, too. From then on all operations on that
        communicator fail with PEER (or with TIMEOUT or MISMATCH, if that broke it). Results of running
        operations are undefined; arrays stay usable. The survivors call

            ignis_comm smaller = ignis_comm_shrink(comm);
            ignis_comm_destroy(comm);

        and go on: they agree on the missing ranks, rank 0 or any other, and get new memory, which late writes
        cannot reach. ignis_comm_abort breaks a communicator on all ranks on purpose. A rank that is slow or
        stopped does not count as dead: the others get TIMEOUT from their operation, and ignis_comm_shrink waits
        for it. ignis_comm_shrink_without excludes it, if all remaining ranks name it. Several hosts communicate
        through rank 0: if it dies, the other hosts lose each other. A host without power or network is noticed
        within 15 s, as its system no longer answers; the system of stopped processes does answer.

        Heartbeats find those, too, and hosts in whose place a network still answers. With
        ignis_comm_desc.heartbeat_s, or IGNIS_COMM_HEARTBEAT, a thread of each rank sends to the others it is
        connected with five times in that limit. A rank from which nothing came for the limit counts as dead:
        its connections are closed, the others get PEER, and if it goes on, it gets PEER, too. A rank that
        computes, compiles or waits on the host still sends, so the limit can be a few seconds. The time in
        which this process itself was stopped does not count. There are no heartbeats by default: a program in
        a debugger is silent.

        ignis_comm_destroy is not a failure for the others; an operation that they begin later ends with
        TIMEOUT.

        WHEN A GPU FAULTS, all GPU work of its process has ended (ON ERRORS in ignis.h). A rank in a separate
        process then calls ignis_comm_abort, so that no rank waits for it, and exits; the others go on without
        it. Ranks of one process end together.

        ALL GPUS OF ONE PROCESS. ignis_comm_init_all creates the communicators of several GPUs in one call,
        without a launcher. One thread begins each operation for one rank after the other, or each rank has a
        thread. With one thread, do not load kernels or allocate memory between the ranks' calls of an operation
        (ignis_warmup loads the built-in kernels): the driver may wait for running kernels, and so for the next
        rank's call. Do not free pinned memory there either (ignis_host_free, ignis_array_unpin, an array that
        has some), even with a thread for each rank: CUDA then waits for all GPUs of the process.
        ignis_comm_split_all creates smaller communicators, ignis_comm_shrink_all new ones after a failure, each
        in one call for all ranks.

    ON RANKS THAT COME BACK (>>comm, >>training, >>parallel)

        A rank that was killed can be started again, and a training then goes on as if it had not died: at the
        step that was not complete, with the same losses, to the bit. Nothing is read from a disk. The program
        has one part that meets the other ranks, at the start and after each death:

    ---- begin example elastic
    #define IGNIS_IMPLEMENTATION
    #include "ignis_collective.h"
    #include <stdio.h>

    static bool meet(ignis_comm *comm, ignis_parallel parallel, ignis_training training, int64_t *step, bool is_lost)
    {
        for (int attempt = 0; attempt < 10; attempt++, is_lost = true) { // a rank may die meanwhile
            ignis_status_clear();
            if (is_lost) {
                ignis_comm grown = ignis_comm_grow(*comm, NULL);
                if (!grown.id)
                    continue;
                ignis_parallel_regroup(parallel, grown);
                ignis_comm_destroy(*comm);
                *comm = grown;
            }
            if (ignis_status_last() == IGNIS_OK &&
                ignis_training_regroup(training, ignis_comm_ranks(*comm), step) == IGNIS_OK)
                return true;
        }
        return false;
    }

    int main(void)
    {
        ignis_setup(NULL);
        ignis_comm comm = ignis_comm_init(NULL);
        ignis_comm_info info = {0};
        ignis_comm_query(comm, &info);
        ignis_device_use(info.device);
        ignis_tensor weights = ignis_tensor_randn(IGNIS_SHAPE(64, 8), &(ignis_tensor_desc){.requires_grad = true});
        ignis_parallel parallel =
            ignis_parallel_create(comm, &weights, 1, &(ignis_parallel_desc){.no_broadcast = true});
        ignis_optimizer optimizer = ignis_adamw(&(ignis_adamw_desc){.zero_grad = true});
        ignis_optimizer_add(optimizer, weights, true);
        const char *names[] = {"weights"};
        ignis_training training = ignis_training_create(&(ignis_training_desc){
            .names = names, .tensors = &weights, .count = 1, .optimizers = &optimizer, .optimizer_count = 1});
        int64_t step = 0;
        bool ok = info.size > 0 && meet(&comm, parallel, training, &step, false);
        while (ok && step < 10) {
            ignis_scope scope = ignis_scope_begin();
            ignis_tensor loss = ignis_map_mean("weights*weights", IGNIS_INPUTS(weights));
            bool complete = ignis_backward(loss, IGNIS_NO_ARRAY) == IGNIS_OK;
            complete = complete && ignis_comm_synchronize(comm) == IGNIS_OK;
            ignis_scope_end(scope);
            complete = complete && // the gradients are those of all ranks
                       ignis_optimizer_step(optimizer) == IGNIS_OK &&
                       ignis_training_mark(training, step + 1) == IGNIS_OK;
            if (complete)
                step++;
            else
                ok = meet(&comm, parallel, training, &step, true);
        }
        printf("%lld steps\n", (long long)step);
        ignis_training_free(training);
        ignis_parallel_free(parallel);
        ignis_optimizer_free(optimizer);
        ignis_tensor_release(weights);
        ignis_comm_destroy(comm);
        return ignis_shutdown() != IGNIS_OK || !ok;
    }
    ---- end example

        ignis_comm_grow is called by all living ranks, on the communicator that has failed, or on one that
        ignis_comm_shrink has made of it. They meet at the place of their ignis_comm_init, and wait there for
        the ranks that are missing, until the deadline; ranks keep their numbers, and their GPUs. The processes
        that were started again call ignis_comm_init as any rank, rank 0 too. The result has its own connections
        and memory, which late writes of the dead cannot reach. If it fails, the old communicator is as it was:
        call it again, or go on with fewer ranks. A process of another job, with another secret, number of ranks
        or heartbeat, and a second process for one rank are refused, and told why. desc.size makes the group
        larger than it was. ignis_parallel_regroup then moves the averages of a rank that lives to the new
        communicator, while new ranks call ignis_parallel_create.

        ignis_comm_synchronize before ignis_optimizer_step is what makes a death cost one step at most: no rank
        updates weights with gradients that are not those of all. The host waits there for the backward pass,
        once a step. When a rank dies, some ranks may have completed a step that others have not.
        ignis_training_regroup finds the rank with the most complete steps, as ignis_training_mark has noted
        them, and sends its tensors, the state of its optimizers with learning rate and loss scale, and its place
        in the random numbers to all. So losses that are to survive are a tensor of ignis_training_desc.state,
        averaged over the ranks before that call. Each rank keeps its own seed. Free graphs, and capture new
        ones; a graph has the backward pass, without the step. Random numbers of graphs begin anew with each
        graph, so that dropout in graphs has other masks after a death.

        The bits are those of an unbroken run while kernels of Ignis compute the collective operations: the order
        of sums depends on the number of ranks alone. NCCL may add in another order.

        WITH SHARDS ranks come back if others have copies of what they had: ignis_parallel_desc.shard_ranks is below
        the number of ranks (GROUPS in ON SHARDS). The program is the one above, for every kind. A rank that comes
        back takes its pieces of parameters, averages and state from the rank at its place in another group. Ranks
        communicate in a step, so the death of one can spoil that of another: the first ignis_optimizer_step after a
        mark keeps a copy of all that it may change, and ignis_training_mark waits for the step. Ranks go back to the
        last step that all living ones have marked. So look at the results of ignis_optimizer_step and
        ignis_training_mark, and call ignis_comm_synchronize before the step: it tells that all have marked the step
        before. The copy takes the bytes of the tensors of ignis_training_desc, of the optimizer's state, and of this
        rank's pieces, on the GPU, from the first ignis_training_regroup on. With shards the graph must end before the
        step. At the start the values of rank 0 count; with IGNIS_SHARD_PARAMETERS each slice is that of its rank
        in the first group, so begin with equal values.

        If all ranks with copies of a piece have died, and always with shards of all ranks, ignis_training_regroup
        fails on all ranks with UNSUPPORTED, and names them: make parameters, optimizers and the training anew, and
        continue from the folder that ignis_training_save has written last. A program that does not want to wait for
        ranks continues with those of ignis_comm_shrink: without shards by ignis_parallel_regroup, with shards from
        such a folder; its losses are then those of fewer ranks.

        The launcher has to start a process again that was killed, and leave the others alone:
        RESTARTS=3 examples/launch.sh 4 ./program does, on one host. torchrun and srun end all ranks of a host,
        or of the job, when one has failed.

    ON DATA-PARALLEL TRAINING (>>parallel)

        Every rank has a GPU, the whole model, and its slice of each batch. A program for one GPU becomes one
        for many by two calls:

            ignis_comm comm = ignis_comm_init(NULL);
            ignis_parallel parallel = ignis_parallel_create(comm, parameters, count, NULL);

        The first one meets the other ranks. The second one broadcasts the parameters of rank 0. From then on
        ignis_backward averages the gradients over the ranks, so that all optimizers take the same step, to the
        bit. If each rank's loss is the mean over a slice of equal size, these are the gradients of the mean
        over the whole batch, up to rounding: the losses are those of one GPU.

        Gradients are in a few large buffers, the buckets. ignis_backward first counts the uses of each bucket's
        parameters. After the last use, one all-reduce averages the bucket on another stream, while the backward
        pass goes on. Pass the parameters in the order of their use: then buckets complete in order, from the
        last to the first. All ranks average all buckets once a backward pass, in the same order, whether their
        loss depends on them or not. So one rank may not use a parameter: its gradient counts as it is, zero
        after a step. A backward function with a backward pass of its own must be an ignis_checkpoint, whose
        parameters are waited for; others end with GRADIENT_LATE if they come too late.

        Between ignis_parallel_no_sync_begin and _end gradients accumulate on each rank alone, for
        micro-batches. A whole step can be captured as a graph, on every rank. If a rank dies or its
        ignis_backward fails, the next operation or ignis_comm_synchronize of the others returns PEER or
        TIMEOUT; the gradients are then undefined. See examples/train_gpt.c.

    ON SHARDS (>>parallel)

        Training in bf16 with AdamW takes 16 bytes a parameter: 2 for the weight, 2 for the gradient, 12 for the
        two moments and the f32 copy. Data-parallel ranks all keep the same; ignis_parallel_desc.shard lets each
        keep a part:

            ignis_parallel_desc desc = {.shard = IGNIS_SHARD_OPTIMIZER};
            ignis_parallel parallel = ignis_parallel_create(comm, parameters, count, &desc);
            ... ignis_optimizer_add, and training as before

        IGNIS_SHARD_OPTIMIZER (ZeRO-1) divides the state of optimizers: 4 + 12 / ranks bytes a parameter. The
        parameters move into buckets, too. Each rank updates one slice of each bucket, with the state of that
        slice, and ignis_optimizer_step then gathers the slices of all ranks.

        IGNIS_SHARD_GRADIENTS (ZeRO-2) divides the gradients, too: 2 + 14 / ranks bytes. A backward pass makes the
        gradients of a bucket, which are reduced and freed while it goes on: the buckets of a pass need memory one
        after the other. Each rank keeps the averages of its slices; ignis_tensor_grad returns no array. In sections
        without averages whole gradients accumulate on each rank, until the pass that averages. Passes of several
        averaged ignis_backward before a step add up their averages, where the other kinds average the sum again.
        A step of an optimizer with drop_grad frees the averages, if it has all parameters of their bucket: then
        they are not there beside the activations of a forward pass.

        IGNIS_SHARD_PARAMETERS (ZeRO-3) divides the parameters, too: 16 / ranks bytes. The first operation that
        uses a parameter gathers its bucket on another stream, and begins to gather the bucket that is used
        next, in the direction of the uses so far; the passes forward and backward gather once each. Three
        buckets at most stay gathered: the one in use, the one before and the next. Ranks of one host that reach
        each other's memory gather by copy engines, and meet before and after a step only. bucket_bytes is a
        layer's worth, or less: an operation waits for the parameters of its bucket alone. All ranks use the
        parameters in the same order, on one thread at a time: a rank that alone reads one, to print or to save
        it, waits for the others until a timeout. To save them, clone them on all ranks. Values that all ranks
        write to a parameter are kept. Its memory is another at each use, so it has no device pointer and is
        not shared or exported. After ignis_parallel_free the parameters have no memory. A graph gathers by
        itself at each launch.

        With all of them, weights, losses and norms have the bits of training without shards, for the same number of
        ranks, where kernels of Ignis compute the collective operations; NCCL may add in another order.

        The program stays as it is. ignis_clip_grad_norm and loss scales see the gradients of all ranks. Muon
        gathers the momentum of a matrix on the ranks that have a piece of it. Averages (ema_decay), sums
        (ignis_optimizer_accumulate), groups and graphs work as without shards. Calls that step, clip, and swap
        averages communicate: all ranks make them alike, and their failures are those of collective operations.

        Call ignis_parallel_create before ignis_optimizer_add, and before arrays of the parameters are taken by
        ignis_tensor_data. An optimizer has parameters of one ignis_parallel with shards, or none of such.
        ignis_optimizer_state returns the state of this rank's pieces: of each parameter a range of its elements,
        empty on some ranks. With one rank nothing is divided. ignis_training_save writes all of it, for any number of
        ranks to continue: .ranks = ignis_comm_ranks(comm); see ON SAVED TRAININGS in ignis.h.

        GROUPS. On several hosts, shards of all ranks send weights between hosts, too. With
        ignis_parallel_desc.shard_ranks fewer ranks divide a copy of the model, and other ranks have copies (HSDP):

            ignis_parallel_desc desc = {.shard = IGNIS_SHARD_PARAMETERS, .shard_ranks = IGNIS_SHARD_RANKS_HOST};

        The first shard_ranks ranks are a group, the next ones are the next group, and so on; with
        IGNIS_SHARD_RANKS_HOST the ranks of each host are. In the figures above, ranks is then the number of ranks in
        a group. Weights are gathered inside a group alone. A backward pass averages the gradients of a bucket inside
        the group into one slice for each rank, and then these slices between the ranks at the same position in all
        groups. So the kernels of Ignis do what is inside a host, and NCCL averages slices between hosts. The rest
        works as with one group, saved trainings included: each copy writes its part of a slice.

        All ranks have the same weights. For one shard_ranks all kinds of shards have the same bits, and so has each
        run. The average of the groups' averages is rounded once in each of the two: the bits are those of training
        without shards if all ranks are one group or each is one by itself, and where no sum is rounded. NCCL may add
        in another order than the kernels of Ignis, so copies on one host and on several may differ.

        ignis_parallel_create makes the communicators of the groups, and ignis_parallel_free destroys them. comm is of
        ignis_comm_init, not ignis_comm_init_all. When one of them fails, comm is broken on all ranks, and errors have
        the number that the rank at fault has in comm. A rank whose own operations were done learns of it in its
        next step, or by ignis_comm_status. Operations between groups have twice the deadline of comm. Each group on
        one host takes 112 MiB of each GPU, and 4 MiB for each of its ranks.

        How much does a rank need, of any number of ranks? A dry run tells (ON DRY RUNS in ignis.h), without a GPU:

    ---- begin example dry_ranks
    #define IGNIS_IMPLEMENTATION
    #include "ignis_collective.h"
    #include <stdio.h>

    enum { LAYERS = 8, WIDTH = 4096, ROWS = 2048 };

    static double peak_of_rank(int ranks, ignis_shard shard) // GiB
    {
        ignis_desc dry = {.dry_run = true};
        ignis_setup(&dry);
        ignis_tensor_desc weight = {.dtype = IGNIS_BF16, .requires_grad = true}, input = {.dtype = IGNIS_BF16};
        ignis_tensor weights[LAYERS], x, none = {0};
        for (int i = 0; i < LAYERS; i++)
            weights[i] = ignis_tensor_zeros(IGNIS_SHAPE(WIDTH, WIDTH), &weight);
        ignis_comm_desc desc = {.size = ranks}; // rank 0; or IGNIS_RANK and IGNIS_WORLD_SIZE
        ignis_parallel_desc shards = {.shard = shard};
        ignis_comm comm = ignis_comm_init(&desc);
        ignis_parallel parallel = ignis_parallel_create(comm, weights, LAYERS, &shards);
        ignis_optimizer optimizer = ignis_adamw(NULL);
        for (int i = 0; i < LAYERS; i++)
            ignis_optimizer_add(optimizer, weights[i], true);
        ignis_scope scope = ignis_scope_begin();
        x = ignis_tensor_zeros(IGNIS_SHAPE(ROWS, WIDTH), &input);
        for (int i = 0; i < LAYERS; i++)
            x = ignis_gelu(ignis_linear(x, weights[i], none));
        ignis_backward(ignis_mean(x), IGNIS_NO_ARRAY);
        ignis_optimizer_step(optimizer);
        ignis_memory_info info = {0};
        ignis_memory_query(0, &info);
        ignis_scope_end(scope);
        ignis_parallel_free(parallel);
        ignis_optimizer_free(optimizer);
        for (int i = 0; i < LAYERS; i++)
            ignis_tensor_release(weights[i]);
        ignis_comm_destroy(comm);
        return ignis_shutdown() == IGNIS_OK ? (double)info.live_peak / (1 << 30) : -1;
    }

    int main(void)
    {
        for (int ranks = 1; ranks <= 64; ranks *= 4)
            printf("%2d ranks: %.2f GiB, %.2f with IGNIS_SHARD_OPTIMIZER, %.2f with IGNIS_SHARD_GRADIENTS\n", ranks,
                   peak_of_rank(ranks, IGNIS_SHARD_NONE), peak_of_rank(ranks, IGNIS_SHARD_OPTIMIZER),
                   peak_of_rank(ranks, IGNIS_SHARD_GRADIENTS));
        return 0;
    }
    ---- end example

    ON TENSOR-PARALLEL TRAINING (>>parallel.tensor)

        The ranks of a communicator divide matrices, and with them weights, gradients, optimizer state, products
        and most activations. All have the same rows of the batch. A block of a transformer needs two sums over
        the ranks in forward and two in backward: before the matrices that are divided by outputs (columns of
        the transposed weight, so "column-parallel"), and after those that are divided by inputs:

            h = ignis_comm_all_reduce_backward(comm, ignis_rms_norm(x, norm1, eps));      [rows, n]
            h = attention(ignis_linear(h, q, none), ignis_linear(h, k, none), ...);       this rank's heads
            x = ignis_add(x, ignis_row_parallel_linear(comm, h, out, none));              [rows, n]
            h = ignis_column_parallel_linear(comm, ignis_rms_norm(x, norm2, eps), up, none);
            x = ignis_add(x, ignis_row_parallel_linear(comm, ignis_gelu(h), down, none));
            loss = ignis_vocab_parallel_cross_entropy(comm, ignis_column_parallel_linear(comm, x, head, none),
                                                      targets, &desc);

        ignis_comm_all_reduce_backward and _forward are all that divided layers need; ignis_column_parallel_linear
        and ignis_row_parallel_linear call them. Other operations work between them, such as ignis_sdpa_packed
        with this rank's heads, or ignis_mlp_gated with parts of its matrices.

        Parameters that all ranks have, of norms and biases after sums, must begin equal on all ranks, from one
        seed or file. They stay equal to the bit, as their gradients are. ignis_dropout of a tensor that all ranks
        have needs equal random numbers: give all ranks of comm one seed (ignis_seed). Masks of divided tensors
        are then equal on all ranks, too.

        Rows between the matrices can be divided, too, so that norms, dropout and residuals run on rows / ranks, and
        keep as many activations (sequence parallelism). An all-gather and a reduce-scatter then replace each
        all-reduce, and send as many bytes:

            x = ignis_comm_slice_rows(comm, ignis_vocab_parallel_embedding(comm, table, ids));    [rows / ranks, n]
            h = ignis_rms_norm(x, ignis_comm_all_reduce_backward(comm, norm1), eps);
            h = ignis_linear(ignis_comm_all_gather_rows(comm, h), up, none);                      [rows, out / ranks]
            h = ignis_comm_reduce_scatter_rows(comm, ignis_linear(ignis_gelu(h), down, none));    [rows / ranks, n]

        A parameter that all ranks have and that meets divided rows has a part of its gradient on each rank, so it
        goes through ignis_comm_all_reduce_backward, too: the norm's weight above, and a bias after the
        reduce-scatter.

        WITH DATA-PARALLEL TRAINING. Of a communicator of all ranks, one that divides matrices, of neighbours, whose
        links are the fastest, and one of the ranks that have the same parts:

            ignis_comm_desc desc = {.most_blocks = 64};           // see ON SEVERAL COMMUNICATORS: both run at a time
            ignis_comm all = ignis_comm_init(&desc);
            ignis_comm_query(all, &info);
            ignis_comm parts = ignis_comm_split(all, info.rank / divide, info.rank);    // divides matrices
            ignis_comm copies = ignis_comm_split(all, info.rank % divide, info.rank);   // averages gradients
            ignis_parallel parallel = ignis_parallel_create(copies, parameters, count, &kind_of_shard);

        Every rank passes its parts of matrices, and all else, to ignis_parallel_create with `copies`, which
        makes them equal to those of its rank 0, averages their gradients, and may shard what the ranks of
        `copies` have alike (ON SHARDS). Ranks of `parts` train on the same slice of the batch, those of
        `copies` on different ones.

        CLIPPING. ignis_clip_grad_norm sees the gradients of this rank alone. With parts of matrices it would scale
        each rank by another factor, and what all ranks have would no longer be equal; nothing detects that. Two
        optimizers, one for parts and one for all else, and ignis_comm_clip_grad_norms(parts, optimizers, 2, 1,
        max_norm) have the norm of the whole model, on all ranks. Loss scales look at that norm,
        too: call it before each step, with INFINITY if nothing is to be clipped. Muon updates each part
        of a matrix as a matrix of its own.

        FAILURES. Operations, and ignis_backward, have the errors of collective operations: a rank that dies is PEER,
        one that does not come TIMEOUT, and ranks whose shapes do not fit MISMATCH, each with the rank's name.
        The ranks of a table of ignis_vocab_parallel_embedding must have equal rows, which is not detected. A
        rank that fails alone calls ignis_comm_abort, or the others wait until the deadline. Graphs contain the
        exchanges, and ignis_checkpoint repeats those of its function in backward, on all ranks. A dry run of a
        rank (ON SHARDS) tells its memory.

        To save a model, each rank writes its parts, or gathers them: ignis_comm_all_gather concatenates rows.
        Trainings with .ranks = ignis_comm_ranks(copies) need a folder for each rank of `parts`.

    ON MODELS OF SEVERAL GPUS (>>comm)

        With ignis_models.h, included before or after this header, the ranks of a communicator can share a model for
        generation, which then uses memory and bandwidth of all GPUs:

            ignis_comm comm = ignis_comm_init(NULL);
            ignis_model_desc from = {.path = "Llama-3.1-8B", .parallel = ignis_comm_parallel(comm)};
            ignis_model model = ignis_model_open(&from); // the shard of this rank, on the current device

        Each rank reads its own heads of queries, keys and values with their KV cache, its slice of the MLP, and
        its rows of an output head that is not the embedding. All ranks have the embeddings and norms. The
        numbers of heads, of key heads and of MLP elements must be multiples of the number of ranks (a key head
        is not kept twice), and shards of quantised rows must end with a block. ignis_model_inspect with only
        rank and size set tells the memory of a rank. Sequences work as with one GPU: all ranks make the same
        calls in the same order with the same arguments, and get the same tokens and logits, to the bit.
        ignis_model_forward, ignis_model_save and adapters need a whole model.

        After the matrix products of attention and of the MLP, ignis_comm_all_reduce sums over the ranks. Logits
        are summed, too, with zeros for the rows of other ranks. Captured steps contain these operations. The
        sums are sent in f32 (f64 of an f64 model), those of rank 0 with the residual stream: so each rank
        beyond the first adds one rounding to f32, in the order of the ranks. In prompt chunks of more than 64
        tokens each rank's sum is rounded to the model's dtype first. So logits differ from those of one GPU by
        roundings.

        With the logits travels a hash of each rank's model sizes, sequence ids and sampling. If one differs,
        the call fails on all ranks with MISMATCH, and sequences do not change. The communicator detects calls
        with other sums, a rank that makes no call, one that fails before it begins, and one that dies: the
        result is MISMATCH, TIMEOUT or PEER, and the communicator is broken.
*/
#include "ignis.h"

#ifndef IGNIS_COLLECTIVE_INCLUDED
#define IGNIS_COLLECTIVE_INCLUDED

#define IGNIS_COLLECTIVE_VERSION 500 /* as IGNIS_VERSION */
#if !defined(IGNIS_VERSION) || IGNIS_VERSION != IGNIS_COLLECTIVE_VERSION
#error "ignis.h and ignis_collective.h are of different versions: copy all headers of Ignis from one release"
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* >>vmm - physical memory, address ranges, mappings, access ------------------------------------------------

   Physical memory has no address. A range of addresses has no memory. A mapping connects the two, and access
   opens a mapping to devices. Handles take physical memory to other processes.
   Threads: every function may be called from any thread.
   Ownership: the caller frees what a function returns; physical memory lives until its last mapping ends. */

/*  Physical memory of a device, without an address. */
typedef struct ignis_vmm {
    uint64_t id;
} ignis_vmm;

/*  A range of addresses, into which physical memory can be mapped. */
typedef struct ignis_vmm_range {
    uint64_t id;
} ignis_vmm_range;

/*  Kinds of handles by which another process gets physical memory. The values are the driver's
    (CUmemAllocationHandleType), except DEFAULT, and NONE, which is 0 there. */
typedef enum ignis_vmm_handle_type {
    IGNIS_VMM_HANDLE_NONE = -1,    /* not at all */
    IGNIS_VMM_HANDLE_DEFAULT = 0,  /* POSIX_FD, on Windows WIN32 */
    IGNIS_VMM_HANDLE_POSIX_FD = 1, /* a file descriptor */
    IGNIS_VMM_HANDLE_WIN32 = 2,    /* an NT handle */
    /* a global handle of Windows that any user could open: refused */
    IGNIS_VMM_HANDLE_WIN32_KMT = 4,
    IGNIS_VMM_HANDLE_MAX = 0x7FFFFFFF
} ignis_vmm_handle_type;

/*  CUmemAllocationType */
typedef enum ignis_vmm_allocation_type {
    IGNIS_VMM_ALLOCATION_INVALID = 0,
    IGNIS_VMM_ALLOCATION_PINNED = 1, /* the memory never moves; the only type that Ignis creates */
    IGNIS_VMM_ALLOCATION_MAX = 0x7FFFFFFF
} ignis_vmm_allocation_type;

/*  CUmemLocationType */
typedef enum ignis_vmm_location_type {
    IGNIS_VMM_LOCATION_INVALID = 0,
    IGNIS_VMM_LOCATION_DEVICE = 1, /* the only one that Ignis creates */
    IGNIS_VMM_LOCATION_HOST = 2,
    IGNIS_VMM_LOCATION_HOST_NUMA = 3,
    IGNIS_VMM_LOCATION_HOST_NUMA_CURRENT = 4,
    IGNIS_VMM_LOCATION_MAX = 0x7FFFFFFF
} ignis_vmm_location_type;

/*  Access of a device to mapped memory: CUmemAccess_flags. */
typedef enum ignis_vmm_access {
    IGNIS_VMM_ACCESS_NONE = 0,
    IGNIS_VMM_ACCESS_READ = 1,
    IGNIS_VMM_ACCESS_READ_WRITE = 3,
    IGNIS_VMM_ACCESS_MAX = 0x7FFFFFFF
} ignis_vmm_access;

/*  The driver's own structs, field by field: CUmemLocation, CUmemAllocationProp, CUmemAccessDesc. */
typedef struct ignis_vmm_location {
    int type; /* ignis_vmm_location_type */
    int id;   /* of a device: its ordinal in this process */
} ignis_vmm_location;

typedef struct ignis_vmm_prop {
    int type;         /* ignis_vmm_allocation_type */
    int handle_types; /* 0, or IGNIS_VMM_HANDLE_POSIX_FD, _WIN32 */
    ignis_vmm_location location;
    void *win32_security; /* OBJECT_ATTRIBUTES *, for IGNIS_VMM_HANDLE_WIN32 */
    struct {
        unsigned char compression, gpu_direct_rdma;
        unsigned short usage;
        unsigned char reserved[4];
    } flags;
} ignis_vmm_prop;

typedef struct ignis_vmm_access_desc {
    ignis_vmm_location location;
    int access; /* ignis_vmm_access */
} ignis_vmm_access_desc;

typedef struct ignis_vmm_desc {
    int64_t size; /* required: bytes; rounded up to whole granules, see ignis_vmm_info.size */
    int device;   /* the memory is on this device (the thread's current one; IGNIS_DEVICE_0 for device 0) */
    ignis_vmm_handle_type handle_type; /* IGNIS_VMM_HANDLE_DEFAULT: it can be exported */
} ignis_vmm_desc;

typedef struct ignis_vmm_info {
    int64_t size;                      /* bytes, a multiple of granularity */
    int64_t granularity;               /* bytes, the smallest of the device */
    int device;                        /* the memory is on this device */
    ignis_vmm_handle_type handle_type; /* the handle that ignis_vmm_export makes */
    bool imported;                     /* created by another process */
    int mappings;                      /* how often ignis_vmm_map has mapped it */
    ignis_vmm_prop prop;               /* from the driver */
} ignis_vmm_info;

typedef struct ignis_vmm_range_info {
    void *ptr;            /* the first address */
    int64_t size;         /* reserved bytes */
    int64_t mapped_bytes; /* of them, mapped ones */
    int mappings;
    int arrays; /* live ones of ignis_vmm_array_map */
} ignis_vmm_range_info;

/*  A handle by which another process maps the same memory. Its holder closes it: ignis_vmm_handle_close. */
typedef struct ignis_vmm_handle {
    ignis_vmm_handle_type type;
    int fd;      /* IGNIS_VMM_HANDLE_POSIX_FD: closed on exec */
    void *win32; /* IGNIS_VMM_HANDLE_WIN32: a HANDLE */
} ignis_vmm_handle;

typedef struct ignis_vmm_array_desc {
    ignis_shape shape;                 /* required: IGNIS_SHAPE(rows, columns) */
    ignis_dtype dtype;                 /* IGNIS_F32 */
    int device;                        /* the thread's current device; IGNIS_DEVICE_0 for device 0 */
    ignis_vmm_handle_type handle_type; /* IGNIS_VMM_HANDLE_DEFAULT: it can be shared */
    const int *access_devices;         /* ordinals of other devices that may read and write it (none) */
    int access_count;
    ignis_owner owner; /* IGNIS_OWNER_IGNIS */
    const char *tag;   /* a name for messages and audits; copied, at most 31 bytes ("") */
} ignis_vmm_array_desc;

/*  ignis_vmm_granularity - return the unit of physical memory on a device
    Returns: bytes (2 MiB on today's devices): the minimum, or what the driver recommends for speed; -1 on
    failure.
    Errors: DEVICE (no such device), UNSUPPORTED (no virtual memory management), LIBRARY (the driver is too
    old), CUDA.
    Ownership: nothing to free.
    Threads: any. */
IGNIS_API int64_t ignis_vmm_granularity(int device, bool recommended);

/*  ignis_vmm_prop_of, ignis_vmm_access_of - fill the driver's structs for memory of a device, and for its
    access
    Returns: the struct, filled; a shareable one names the system's handle type.
    Errors: none.
    Ownership: nothing to free; win32_security is null.
    Threads: any. */
IGNIS_API ignis_vmm_prop ignis_vmm_prop_of(int device, bool shareable);
IGNIS_API ignis_vmm_access_desc ignis_vmm_access_of(int device, bool read_write);

/*  ignis_vmm_check - report an error of a driver call as Ignis reports its own
    Returns: IGNIS_OK for 0; else CUDA, or MEMORY for CUDA_ERROR_OUT_OF_MEMORY.
    Errors: CUDA, MEMORY.
    Ownership: context says what was attempted ("mapping the cache"); it is only read.
    Threads: any. */
IGNIS_API ignis_status ignis_vmm_check(int driver_error, const char *context);

/*  ignis_vmm_create - allocate physical memory on a device, without an address
    It counts in ignis_memory_info.vmm_bytes; ignis_desc.memory_limit does not limit it. The cache is trimmed
    before an allocation fails.
    Returns: the memory, or no handle.
    Errors: ARGUMENT, DEVICE, MEMORY, UNSUPPORTED, LIBRARY, CUDA.
    Ownership: the caller frees it with ignis_vmm_free.
    Threads: any. */
IGNIS_API ignis_vmm ignis_vmm_create(const ignis_vmm_desc *desc);

/*  ignis_vmm_free - free physical memory
    The device gets it back after the last mapping has ended and every process that imported it has freed it.
    Returns: IGNIS_OK, or the reason.
    Errors: FREED (also for a second free).
    Ownership: the handle is stale afterwards; mappings stay valid.
    Threads: any. */
IGNIS_API ignis_status ignis_vmm_free(ignis_vmm vmm);

/*  ignis_vmm_reserve - reserve a range of addresses, without memory
    size is rounded up to whole granules of the current device; alignment is 0 or a power of two.
    Returns: the range, or no handle.
    Errors: ARGUMENT, MEMORY, UNSUPPORTED, LIBRARY, CUDA.
    Ownership: the caller frees it with ignis_vmm_unreserve.
    Threads: any. */
IGNIS_API ignis_vmm_range ignis_vmm_reserve(int64_t size, int64_t alignment);

/*  ignis_vmm_unreserve - free a range of addresses
    Returns: IGNIS_OK; on failure nothing changes.
    Errors: FREED, ARGUMENT (memory is mapped in it).
    Ownership: the handle is stale afterwards.
    Threads: any. */
IGNIS_API ignis_status ignis_vmm_unreserve(ignis_vmm_range range);

/*  ignis_vmm_query, ignis_vmm_range_query - read facts about physical memory, and about a range
    Returns: IGNIS_OK, and *info filled.
    Errors: FREED, ARGUMENT; of physical memory, CUDA.
    Ownership: nothing to free.
    Threads: any. */
IGNIS_API ignis_status ignis_vmm_query(ignis_vmm vmm, ignis_vmm_info *info);
IGNIS_API ignis_status ignis_vmm_range_query(ignis_vmm_range range, ignis_vmm_range_info *info);

/*  ignis_vmm_map - map all of a physical memory at an offset in a range
    No device may touch it before ignis_vmm_set_access. The same memory may be mapped several times.
    Units: offset in bytes, a multiple of the granularity.
    Returns: IGNIS_OK, or the reason.
    Errors: FREED, ARGUMENT (outside the range, something is mapped there, not a multiple), MEMORY, CUDA.
    Ownership: the mapping keeps the memory until ignis_vmm_unmap.
    Threads: any. */
IGNIS_API ignis_status ignis_vmm_map(ignis_vmm_range range, int64_t offset, ignis_vmm vmm);

/*  ignis_vmm_unmap - end the mapping that begins at an offset
    Waits until the devices with access have done the work that was queued before.
    Returns: IGNIS_OK; on failure nothing changes.
    Errors: FREED, ARGUMENT (no mapping begins there, or arrays use it), CUDA.
    Ownership: physical memory that was already freed returns to the device.
    Threads: any. Waits. */
IGNIS_API ignis_status ignis_vmm_unmap(ignis_vmm_range range, int64_t offset);

/*  ignis_vmm_set_access, ignis_vmm_get_access - set or read the access of a device to a mapped slice of a
    range
    Set it for every device that uses the slice, after every map. Peer access of contexts has no effect.
    ignis_vmm_get_access reads the access to the granule at an offset.
    Units: offset and size in bytes, multiples of the granularity.
    Returns: IGNIS_OK, or the reason.
    Errors: FREED, ARGUMENT (not mapped throughout, not a multiple, no such access), DEVICE, CUDA (the device
    cannot reach it).
    Ownership: nothing to free.
    Threads: any. */
IGNIS_API ignis_status ignis_vmm_set_access(ignis_vmm_range range, int64_t offset, int64_t size, int device,
                                            ignis_vmm_access access);
IGNIS_API ignis_status ignis_vmm_get_access(ignis_vmm_range range, int64_t offset, int device,
                                            ignis_vmm_access *access);

/*  ignis_vmm_export - make a handle of physical memory for another process
    Returns: IGNIS_OK, and *handle filled.
    Errors: FREED, ARGUMENT (made with IGNIS_VMM_HANDLE_NONE), CUDA.
    Ownership: the caller closes the handle after sending it: ignis_vmm_handle_close. The handle keeps the
    memory.
    Threads: any. */
IGNIS_API ignis_status ignis_vmm_export(ignis_vmm vmm, ignis_vmm_handle *handle);

/*  ignis_vmm_import - import physical memory from the handle of another process
    The sender is not trusted: the driver tells the kind and the device of the memory, and mapping it proves
    its size.
    Units: size in bytes, ignis_vmm_info.size of the exporter.
    Returns: the memory, or no handle.
    Errors: ARGUMENT (no handle, size is not the memory's), DEVICE (the memory is on another device),
    UNSUPPORTED, CUDA.
    Ownership: the caller frees it with ignis_vmm_free; the handle stays the caller's.
    Threads: any. */
IGNIS_API ignis_vmm ignis_vmm_import(const ignis_vmm_handle *handle, int64_t size, int device);

/*  ignis_vmm_handle_close - close an exported or received handle; a second time does nothing
    Returns: IGNIS_OK.
    Errors: ARGUMENT (null).
    Ownership: the handle is closed and *handle is cleared.
    Threads: any. */
IGNIS_API ignis_status ignis_vmm_handle_close(ignis_vmm_handle *handle);

/*  ignis_vmm_handle_duplicate - make a handle valid in another process of this user (Windows only)
    Windows handles are numbers of one process. The number in out->win32 can be sent as 8 bytes.
    ignis_channel_send duplicates and sends in one call; elsewhere it sends descriptors.
    Returns: IGNIS_OK, and *out filled.
    Errors: ARGUMENT, PEER (the process does not exist or belongs to another user), UNSUPPORTED (not on
    Windows).
    Ownership: *out belongs to the other process, which closes it: do not close it here. *handle stays the
    caller's.
    Threads: any. */
IGNIS_API ignis_status ignis_vmm_handle_duplicate(const ignis_vmm_handle *handle, int64_t process_id,
                                                  ignis_vmm_handle *out);

/*  ignis_vmm_array - create an array in its own physical memory, to share with other devices and processes
    It is an ordinary array; its content is undefined.
    Shape: as for ignis_array_create; memory comes in whole granules (2 MiB), so prefer few large arrays.
    Returns: the array, or no handle.
    Errors: ARGUMENT, SHAPE, DEVICE, MEMORY, UNSUPPORTED, LIBRARY, CUDA.
    Ownership: the caller frees it as any array; address and memory are freed with its last view.
    Threads: any. */
IGNIS_API ignis_array ignis_vmm_array(const ignis_vmm_array_desc *desc);

/*  ignis_vmm_array_map - create an array over a mapped slice of a range
    desc is that of ignis_array_create, without ptr and release_fn.
    Units: offset in bytes, a multiple of the element size.
    Returns: the array, or no handle.
    Errors: FREED, ARGUMENT (not mapped throughout), CONTRACT (desc.device has no access), SHAPE.
    Ownership: the caller frees it; until then ignis_vmm_unmap fails.
    Threads: any. */
IGNIS_API ignis_array ignis_vmm_array_map(ignis_vmm_range range, int64_t offset, const ignis_array_desc *desc);

/*  ignis_vmm_of_array - find the physical memory of an array
    Units: *offset (may be null) in bytes, from the start of the memory to the array's first element.
    Returns: the memory, or no handle.
    Errors: FREED, ARGUMENT (the array is in memory of another kind), CUDA.
    Ownership: the caller frees it with ignis_vmm_free; it keeps the memory, as a mapping does.
    Threads: any. */
IGNIS_API ignis_vmm ignis_vmm_of_array(ignis_array array, int64_t *offset);

/* >>channel - messages between two processes ------------------------------------------------------------------

   A server opens a name, clients connect to it. A message has bytes and, through sockets and Windows pipes,
   descriptors. Both processes run on one machine, for one user, and know a token.
   Threads: every function may be called from any thread; calls of one kind on one channel take turns. */

#define IGNIS_CHANNEL_MAX_BYTES 65536 /* bytes of a message */
#define IGNIS_CHANNEL_MAX_FDS 64      /* descriptors of a message */
#define IGNIS_CHANNEL_TOKEN_BYTES 16  /* bytes of ignis_channel_desc.token */

/*  A channel: messages, and descriptors with them, between two processes of one machine and one user. */
typedef struct ignis_channel {
    uint64_t id;
} ignis_channel;

typedef enum ignis_channel_method {
    IGNIS_CHANNEL_DEFAULT = 0, /* IGNIS_CHANNEL_SOCKET; on Windows IGNIS_CHANNEL_PIPE */
    IGNIS_CHANNEL_SOCKET,      /* a Unix socket, which carries descriptors; not on Windows */
    IGNIS_CHANNEL_PIPE,        /* two FIFOs; on Windows a named pipe, which carries handles */
    IGNIS_CHANNEL_SHM,         /* two rings in a shared file; not on Windows */
    IGNIS_CHANNEL_METHOD_COUNT
} ignis_channel_method;

typedef struct ignis_channel_desc {
    /* required, the same on both sides: letters, digits, '.', '_', '-', at most 63, '.' not first */
    const char *name;
    ignis_channel_method method; /* IGNIS_CHANNEL_DEFAULT */
    /* a folder of mode 0700, created if missing (IGNIS_COMM_DIR, else $XDG_RUNTIME_DIR/ignis, else
       <tmp>/ignis-<uid>) */
    const char *directory;
    /* IGNIS_CHANNEL_TOKEN_BYTES that both sides know (random bytes in a file of the server) */
    const unsigned char *token;
    double timeout_s; /* the longest wait of accept, connect, send and receive, in seconds (30) */
} ignis_channel_desc;

typedef struct ignis_channel_info {
    ignis_channel_method method;
    bool server; /* it listens: from ignis_channel_serve */
    bool alive;  /* the peer is alive; of a server: it listens */
    /* process of the peer, from the system for sockets and on Windows, else from the peer; 0: unknown */
    int64_t peer_pid;
    int64_t peer_uid; /* its user; -1: unknown */
    int64_t refused;  /* refused connections of a server */
    char path[512];   /* of the socket, FIFO or file; of the pipe on Windows */
    /* for poll and epoll: readable when a message came; of a server, when ignis_channel_accept_within should
       be called; -1 for IGNIS_CHANNEL_SHM and on Windows */
    int fd;
    int send_fd; /* for poll and epoll: writable when a message can be sent; -1 as for fd */
    /* bytes of sent messages that the system has not taken yet; later calls on the channel send them */
    int64_t unsent;
} ignis_channel_info;

/*  ignis_channel_serve - open a channel for others to connect to
    Files of a dead server of this name are replaced. Only processes of this user that have the token can
    connect.
    Returns: a listening channel, for ignis_channel_accept, ignis_channel_query and ignis_channel_close; 0 on
    failure.
    Errors: ARGUMENT (no desc, name or method, a bad timeout), UNSUPPORTED (the method, on this system), IO (a
    live server has the name; the folder is not private; a path is too long), MEMORY.
    Ownership: ignis_channel_close frees it and removes its files.
    Threads: any. */
IGNIS_API ignis_channel ignis_channel_serve(const ignis_channel_desc *desc);

/*  ignis_channel_accept - wait for the next client
    Clients without the token, of another user or with another protocol are refused and counted in
    ignis_channel_info.refused. The first one is logged as a warning. The wait goes on.
    Returns: a channel to the client, 0 on failure.
    Errors: ARGUMENT (the channel does not listen), FREED, TIMEOUT (no client came), IO, MEMORY.
    Ownership: ignis_channel_close frees it; it outlives the server's channel.
    Threads: any; calls on one channel take turns. Waits until the deadline. */
IGNIS_API ignis_channel ignis_channel_accept(ignis_channel server);

/*  ignis_channel_accept_within, ignis_channel_send_within, ignis_channel_receive_within - accept, send or
    receive with a timeout of the call
    timeout_s is in seconds; 0: do not wait; below 0: the timeout of the channel. A timeout of 0 that passes
    is neither logged nor kept for ignis_status_last: ignis_channel_accept_within returns 0, the others
    IGNIS_ERROR_TIMEOUT.
    Returns: as ignis_channel_accept, ignis_channel_send and ignis_channel_receive.
    Errors: as theirs.
    Ownership: as theirs.
    Threads: any. Waits for at most timeout_s. */
IGNIS_API ignis_channel ignis_channel_accept_within(ignis_channel server, double timeout_s);
IGNIS_API ignis_status ignis_channel_send_within(ignis_channel channel, const void *data, int64_t size, const int *fds,
                                                 int fd_count, double timeout_s);
IGNIS_API ignis_status ignis_channel_receive_within(ignis_channel channel, void *data, int64_t capacity, int64_t *size,
                                                    int *fds, int fd_capacity, int *fd_count, double timeout_s);

/*  ignis_channel_connect - connect to the server of a name, or wait for it until the deadline
    Returns: a channel to the server, 0 on failure.
    Errors: ARGUMENT, UNSUPPORTED, TIMEOUT (no server came, or it did not accept), PEER (it refused), IO,
    MEMORY.
    Ownership: ignis_channel_close frees it.
    Threads: any. Waits until the deadline. */
IGNIS_API ignis_channel ignis_channel_connect(const ignis_channel_desc *desc);

/*  ignis_channel_send - send one message of 0 to IGNIS_CHANNEL_MAX_BYTES bytes, with descriptors
    It arrives completely, once, in order, or not at all. fds may be null when fd_count is 0. On Windows they
    are handles, as int.
    Returns: IGNIS_OK once the system has taken it; the peer may read it later.
    Errors: ARGUMENT (too much; a listening channel), FREED, UNSUPPORTED (IGNIS_DIAG_CHANNEL_DESCRIPTOR:
    descriptors need IGNIS_CHANNEL_SOCKET), PEER (the peer is gone), TIMEOUT (it does not read), IO (on
    Windows also: no handle can be duplicated into it).
    Ownership: the caller keeps the descriptors and may close them afterwards.
    Threads: any; calls on one channel take turns. Waits until the deadline. */
IGNIS_API ignis_status ignis_channel_send(ignis_channel channel, const void *data, int64_t size, const int *fds,
                                          int fd_count);

/*  ignis_channel_receive - wait for the next message
    If the buffers are too small, *size and *fd_count tell what is needed, and the message stays for the next
    call. size and fd_count may be null.
    Returns: IGNIS_OK, *size bytes in data, *fd_count descriptors in fds.
    Errors: ARGUMENT (buffers too small; a listening channel), FREED, TIMEOUT (nothing came; the channel stays
    usable), PEER (the peer is gone, or broke the protocol: close the channel), IO.
    Ownership: the caller closes the descriptors; exec closes them, too. On failure none stays open.
    Threads: any; calls on one channel take turns. Waits until the deadline. */
IGNIS_API ignis_status ignis_channel_receive(ignis_channel channel, void *data, int64_t capacity, int64_t *size,
                                             int *fds, int fd_capacity, int *fd_count);

/*  ignis_channel_query - read facts about a channel, and whether the peer is alive
    Returns: IGNIS_OK, and *info filled.
    Errors: ARGUMENT, FREED.
    Ownership: nothing to free.
    Threads: any. */
IGNIS_API ignis_status ignis_channel_query(ignis_channel channel, ignis_channel_info *info);

/*  ignis_channel_close - close a channel
    The peer still receives what was sent before. Calls that wait on the channel in other threads return.
    Returns: IGNIS_OK.
    Errors: FREED.
    Ownership: its descriptors are closed and its files removed.
    Threads: any. */
IGNIS_API ignis_status ignis_channel_close(ignis_channel channel);

/* >>transport - copies between devices and processes, by VMM, legacy IPC, peer copy or host memory --------------

   A transport exports an array as a handle and imports it on another device or in another process. Some kinds
   share the memory, others copy. Handles travel through a channel, or the caller carries them.
   Threads: every function may be called from any thread. */

/*  Kinds of transports. */
typedef enum ignis_transport_kind {
    IGNIS_TRANSPORT_AUTO = 0, /* the best kind that passed a test write and read */
    IGNIS_TRANSPORT_VMM,      /* both sides map the same physical memory: no copy; arrays of ignis_vmm_array */
    IGNIS_TRANSPORT_PEER,     /* one process copies from device to device */
    /* CUDA's older handles: no copy; arrays of ignis_ipc_array. Never chosen by AUTO: if the exporter dies,
       users of its memory fault */
    IGNIS_TRANSPORT_IPC,
    IGNIS_TRANSPORT_HOST, /* through host memory that both sides map */
    IGNIS_TRANSPORT_KIND_COUNT
} ignis_transport_kind;

/*  A transport of arrays between two devices or processes. */
typedef struct ignis_transport {
    uint64_t id;
} ignis_transport;

#define IGNIS_TRANSPORT_TOKEN_BYTES 16 /* bytes of ignis_transport_desc.token */

typedef struct ignis_transport_desc {
    /* IGNIS_TRANSPORT_AUTO: what IGNIS_TRANSPORT in the environment names (vmm, peer, ipc, host), or the
       best */
    ignis_transport_kind kind;
    /* devices of the source and of the destination (the thread's current device; IGNIS_DEVICE_0 for device
       0) */
    int src_device, dst_device;
    /* the method by which handles travel (that of the channel, else the default) */
    ignis_channel_method exchange;
    /* a connected channel for the handles of send and receive (none); the caller keeps it */
    ignis_channel channel;
    /* IGNIS_TRANSPORT_TOKEN_BYTES that both sides know (the secret in the user's private folder) */
    const unsigned char *token;
    double timeout_s; /* the longest wait of a receive for a sender of this process, in seconds (30) */
} ignis_transport_desc;

/*  A handle, by which another process gets an array. The record travels as bytes, the descriptors of
    ignis_transport_handle_fds through a socket; on Windows they are handles, as int. With an exchange method
    that carries no descriptors, all kinds but IGNIS_TRANSPORT_VMM use a named file in the private folder
    instead. The first import of the handle removes that file. */
#define IGNIS_TRANSPORT_RECORD_BYTES 296

typedef struct ignis_transport_handle {
    unsigned char record[IGNIS_TRANSPORT_RECORD_BYTES]; /* the exporter and the array, sealed with the token */
    ignis_vmm_handle memory;                            /* for IGNIS_TRANSPORT_VMM and _HOST */
    bool has_lease;
    int lease; /* a pipe: the array is in use while this end is open in any process */
} ignis_transport_handle;

typedef struct ignis_transport_info {
    ignis_transport_kind kind;
    const char *name; /* "VMM", "peer", "IPC", "host" */
    int src_device, dst_device;
    ignis_channel_method exchange;
    bool ready;
    bool zero_copy;                                       /* an imported array is the exporter's memory */
    double estimated_bandwidth_gbs, estimated_latency_us; /* 1e9 bytes a second; microseconds */
    double measured_bandwidth_gbs, measured_latency_us;   /* by ignis_transport_measure; 0: not measured */
    int exported;                                         /* handles that are in use elsewhere */
    int imported;                                         /* live arrays of ignis_transport_import_handle */
    int mappings;                                         /* of those arrays */
} ignis_transport_info;

typedef struct ignis_transport_choice {
    ignis_transport_kind kind;
    char reason[1024]; /* why this kind, and why not the better ones */
} ignis_transport_choice;

/*  ignis_transport_available - tell if a kind of transport connects two devices
    Returns: true; or false, with the reason in `reason`, of `capacity` bytes (may be null).
    Errors: NOT_SETUP, DEVICE and ARGUMENT; an unavailable kind is not a failure.
    Ownership: nothing to free.
    Threads: any. May write and read a little device memory. */
IGNIS_API bool ignis_transport_available(ignis_transport_kind kind, int src_device, int dst_device, char *reason,
                                         size_t capacity);

/*  ignis_transport_select - choose a kind as IGNIS_TRANSPORT_AUTO does
    same_process: source and destination are in this process.
    Returns: IGNIS_OK, and *choice filled.
    Errors: ARGUMENT (also an unknown name in IGNIS_TRANSPORT), DEVICE, UNSUPPORTED (none is available).
    Ownership: nothing to free.
    Threads: any. May write and read a little device memory. */
IGNIS_API ignis_status ignis_transport_select(int src_device, int dst_device, bool same_process,
                                              ignis_transport_choice *choice);

/*  ignis_transport_create - create a transport between two devices or processes
    Without a channel the caller carries the handles. The peer kind works within one process only.
    Returns: the transport, or no handle.
    Errors: ARGUMENT, DEVICE, FREED (the channel), UNSUPPORTED (the kind is not available), IO (the token's
    folder), MEMORY.
    Ownership: the caller frees it with ignis_transport_destroy.
    Threads: any. */
IGNIS_API ignis_transport ignis_transport_create(const ignis_transport_desc *desc);

/*  ignis_transport_initialize - open both devices, and enable access between them if the kind needs it; a
    second
    call does nothing
    ignis_transport_ready - tell if that was done
    Returns: IGNIS_OK, or the reason; true or false.
    Errors: FREED; of ignis_transport_initialize, DEVICE, UNSUPPORTED, CUDA.
    Ownership: nothing to free.
    Threads: any. */
IGNIS_API ignis_status ignis_transport_initialize(ignis_transport transport);
IGNIS_API bool ignis_transport_ready(ignis_transport transport);

/*  ignis_transport_query - read facts about a transport
    Returns: IGNIS_OK, and *info filled.
    Errors: FREED, ARGUMENT.
    Ownership: nothing to free; info->name is a constant.
    Threads: any. */
IGNIS_API ignis_status ignis_transport_query(ignis_transport transport, ignis_transport_info *info);

/*  ignis_transport_to_string - write kind, devices and exchange method: "IPC[0->1, named_pipe]"
    Returns: the length of the whole text, which is cut to capacity; -1 on failure.
    Errors: FREED, ARGUMENT.
    Ownership: nothing to free.
    Threads: any. */
IGNIS_API int ignis_transport_to_string(ignis_transport transport, char *out, size_t capacity);

/*  ignis_transport_export_handle - make a handle of an array for another process
    ignis_transport_exported_handle - return the latest handle again that is still in use The importer sees
    what was written before; with IGNIS_TRANSPORT_HOST, a copy of it. Exporting the same array again gives the
    same record. Waits for the work on the array.
    Returns: IGNIS_OK, and *handle filled.
    Errors: FREED, ARGUMENT (not initialized; the memory of the array cannot be shared: the message names what
    to use; of exported_handle, IGNIS_DIAG_TRANSPORT_HANDLE: no handle is in use), DEVICE (it is not on
    src_device), CUDA, IO, MEMORY.
    Ownership: the array is exported (ref_count, and it can be neither freed nor transferred) until the
    handle, its copies and all imports from it are closed; dead processes do not count. The caller closes the
    handle: ignis_transport_handle_close.
    Threads: any. Waits. */
IGNIS_API ignis_status ignis_transport_export_handle(ignis_transport transport, ignis_array array,
                                                     ignis_transport_handle *handle);
IGNIS_API ignis_status ignis_transport_exported_handle(ignis_transport transport, ignis_transport_handle *handle);

/*  ignis_transport_handle_fds - list the descriptors that travel with a handle's record, up to two
    ignis_transport_handle_from_fds - make a handle of a record and descriptors that came
    Returns: the number of descriptors in fds; or IGNIS_OK.
    Errors: ARGUMENT (null; the record needs another number of descriptors).
    Ownership: the handle keeps the descriptors; from_fds takes them, also when it fails.
    Threads: any. */
IGNIS_API int ignis_transport_handle_fds(const ignis_transport_handle *handle, int fds[2]);
IGNIS_API ignis_status ignis_transport_handle_from_fds(ignis_transport_handle *handle, const void *record,
                                                       const int *fds, int fd_count);

/*  ignis_transport_handle_close - close the descriptors of a sent or imported handle; a second call does
    nothing
    Returns: IGNIS_OK.
    Errors: ARGUMENT (null).
    Ownership: *handle is cleared. Imported arrays stay.
    Threads: any. */
IGNIS_API ignis_status ignis_transport_handle_close(ignis_transport_handle *handle);

/*  ignis_transport_release_handle - declare, as the exporter, that no process uses an array any more
    Needed if the importer cannot tell: a handle that was never imported and has no channel, or that travelled
    without its lease.
    Returns: IGNIS_OK; also if the array is not exported.
    Errors: FREED.
    Ownership: the array can be freed afterwards.
    Threads: any. */
IGNIS_API ignis_status ignis_transport_release_handle(ignis_transport transport, ignis_array array);

/*  ignis_transport_import_handle - import the array of a handle on dst_device
    ignis_transport_recv_with_handle - another name of it Before the driver sees a handle, its seal, size,
    values and device are checked. They must agree with the memory that this process mapped or exported. With
    a socket channel the sender must be the peer that the kernel names. Importing a handle again shares the
    mapping. Shape, dtype and tag are the exporter's.
    Returns: an array, or no handle.
    Errors: FREED, ARGUMENT (not initialized; another kind), FORMAT (IGNIS_DIAG_TRANSPORT_RECORD: not a
    handle, or its seal is wrong), MISMATCH (IGNIS_DIAG_TRANSPORT_MISMATCH: it contradicts itself, the memory
    or an earlier handle; it is no longer exported), PEER (IGNIS_DIAG_TRANSPORT_PEER: it is of another process
    than its sender), UNSUPPORTED (the exporter's device is not visible here), CUDA, IO, MEMORY.
    Ownership: the caller frees the array, or calls ignis_transport_close_imported_handle. The caller keeps
    the handle.
    Threads: any. */
IGNIS_API ignis_array ignis_transport_import_handle(ignis_transport transport, const ignis_transport_handle *handle);
IGNIS_API ignis_array ignis_transport_recv_with_handle(ignis_transport transport, const ignis_transport_handle *handle);

/*  ignis_transport_close_imported_handle - free an imported array; the last one, and its views, end the
    mapping
    Returns: IGNIS_OK; on failure nothing changes.
    Errors: FREED, ARGUMENT (not imported by this transport), CONTRACT (references).
    Ownership: the handle is stale afterwards; then the exporter may free its array.
    Threads: any. Waits for the work on the array. */
IGNIS_API ignis_status ignis_transport_close_imported_handle(ignis_transport transport, ignis_array array);

/*  ignis_transport_send, ignis_transport_send_async - make an array's content available to the receiver
    Its handle goes to *handle; if that is null, through the transport's channel; without one, for the kinds
    that copy, to a receive of this process. ignis_transport_send waits for the work on the array. After the
    async form, call ignis_transport_synchronize before the receiver reads. Do not change the array until it
    has read. FIFOs and shared memory carry all kinds but IGNIS_TRANSPORT_VMM, whose memory is a descriptor.
    Returns: IGNIS_OK, or the reason.
    Errors: those of ignis_transport_export_handle and ignis_channel_send; ARGUMENT
    (IGNIS_DIAG_TRANSPORT_HANDLE: neither handle nor channel), UNSUPPORTED (IGNIS_DIAG_CHANNEL_DESCRIPTOR:
    IGNIS_TRANSPORT_VMM needs a channel that carries descriptors).
    Ownership: as for ignis_transport_export_handle.
    Threads: any. */
IGNIS_API ignis_status ignis_transport_send(ignis_transport transport, ignis_array array,
                                            ignis_transport_handle *handle);
IGNIS_API ignis_status ignis_transport_send_async(ignis_transport transport, ignis_array array,
                                                  ignis_transport_handle *handle);

/*  ignis_transport_recv, ignis_transport_recv_async - copy a sent array into an array, for the kinds that
    copy
    The kinds that share memory copy nothing: ignis_transport_recv_with_handle returns the sender's array.
    ignis_transport_recv waits for the copy; the async form queues it on the current stream of dst_device.
    Returns: IGNIS_OK, or the reason.
    Errors: FREED, ARGUMENT (IGNIS_DIAG_TRANSPORT_HANDLE: the kind shares memory; not initialized), SHAPE,
    DTYPE, TIMEOUT (nothing was sent), those of import and ignis_channel_receive.
    Ownership: nothing to free.
    Threads: any. Waits until the deadline. Streams: queued on the current stream of dst_device. */
IGNIS_API ignis_status ignis_transport_recv(ignis_transport transport, ignis_array array);
IGNIS_API ignis_status ignis_transport_recv_async(ignis_transport transport, ignis_array array);

/*  ignis_transport_receive_handle - receive the next handle from the transport's channel
    Returns: IGNIS_OK, and *handle filled.
    Errors: FREED, ARGUMENT (it has no channel), those of ignis_channel_receive, and those of an import for an
    invalid handle.
    Ownership: the caller closes the handle: ignis_transport_handle_close.
    Threads: any. Waits until the channel's deadline. */
IGNIS_API ignis_status ignis_transport_receive_handle(ignis_transport transport, ignis_transport_handle *handle);

/*  ignis_transport_synchronize - wait for all work on both devices
    Returns: IGNIS_OK, or the failure of an earlier kernel or copy.
    Errors: FREED, ARGUMENT (not initialized), DEVICE, CUDA.
    Ownership: nothing to free.
    Threads: any. Waits. */
IGNIS_API ignis_status ignis_transport_synchronize(ignis_transport transport);

/*  ignis_transport_measure - measure bandwidth and latency of copies from src_device to dst_device
    Units: bytes of the larger copy (0: 64 MiB); the results are in ignis_transport_info.
    Returns: IGNIS_OK, or the reason.
    Errors: FREED, ARGUMENT, MEMORY, CUDA.
    Ownership: nothing to free.
    Threads: any. Waits. */
IGNIS_API ignis_status ignis_transport_measure(ignis_transport transport, int64_t bytes);

/*  ignis_transport_destroy - free a transport
    Its exports count as released. Its imported arrays are freed; their views stay valid.
    Returns: IGNIS_OK.
    Errors: FREED.
    Ownership: the handle is stale afterwards. The caller keeps the channel.
    Threads: any. */
IGNIS_API ignis_status ignis_transport_destroy(ignis_transport transport);

/*  ignis_ipc_array - create an array in its own driver allocation of whole 2 MiB blocks, for
    IGNIS_TRANSPORT_IPC
    An exported handle exposes the whole allocation, so a shared array must be alone in it. desc is that of
    ignis_array_create, without ptr and release_fn.
    Returns: the array, or no handle.
    Errors: ARGUMENT, SHAPE, DEVICE, MEMORY, CUDA.
    Ownership: the caller frees it as any array.
    Threads: any. */
IGNIS_API ignis_array ignis_ipc_array(const ignis_array_desc *desc);

/* >>share - arrays that two processes use -----------------------------------------------------------------------

   One call sends an array through a channel, one receives it; both processes then use the same memory.
   Ownership: the memory lives until both have freed their arrays, also if one of them dies.
   Threads: every function may be called from any thread. */

/*  ignis_share_send - share an array with the peer of a channel, without a copy
    The array is one of ignis_vmm_array, or in memory of ignis_vmm_create. A view can be sent, but all its
    memory becomes accessible. Waits for the work on its device, so the peer finds what was written before.
    Both then use the same memory and agree by messages when each may write.
    Returns: IGNIS_OK, or the reason.
    Errors: FREED, ARGUMENT (IGNIS_DIAG_NOT_SHAREABLE; a listening channel), UNSUPPORTED
    (IGNIS_DIAG_CHANNEL_DESCRIPTOR: not a channel of the default method; this thread captures a graph), PEER,
    TIMEOUT, CUDA, MEMORY.
    Ownership: the caller keeps the array, which has one reference more. It can be neither freed nor
    transferred (IGNIS_DIAG_FREE_EXPORTED) until the other process has freed its array or died. Closing the
    channel does not change this.
    Threads: any. Waits. */
IGNIS_API ignis_status ignis_share_send(ignis_channel channel, ignis_array array);

/*  ignis_share_receive - receive the next array from a channel
    It is an ordinary array on the same GPU, which may have another ordinal here. Shape, dtype and tag are the
    sender's. The description is checked before any use.
    Returns: the array, or no handle.
    Errors: FREED, ARGUMENT (a listening channel; the next item is a message, which stays for
    ignis_channel_receive), FORMAT (IGNIS_DIAG_TRANSPORT_RECORD: not an array), MISMATCH and PEER (the
    description is wrong, as for ignis_transport_import_handle), UNSUPPORTED
    (IGNIS_DIAG_TRANSPORT_UNAVAILABLE: this process does not see the GPU), PEER, TIMEOUT, CUDA, MEMORY.
    Ownership: the caller frees it with ignis_array_free; its memory lives until both processes have freed it,
    also if the sender dies.
    Threads: any. Waits until the deadline. */
IGNIS_API ignis_array ignis_share_receive(ignis_channel channel);

/* >>comm - communicators and collective operations --------------------------------------------------------------

   Ranks meet, get a communicator each, and call the same operations on it in the same order. Every wait has a
   deadline. A failure breaks a communicator on all ranks; the survivors make a new one by ignis_comm_shrink.
   Ownership: the caller frees a communicator with ignis_comm_destroy. */

#define IGNIS_COMM_MAX_RANKS 8  /* of the built-in kernels; NCCL runs larger communicators */
#define IGNIS_COMM_ID_BYTES 128 /* as NCCL's, so that programs distribute it in the same way */

/*  A communicator, as one rank of a group of GPUs holds it. */
typedef struct ignis_comm {
    uint64_t id;
} ignis_comm;

/*  How reducing operations combine elements. */
typedef enum ignis_op {
    IGNIS_OP_SUM,
    IGNIS_OP_PROD,
    IGNIS_OP_MIN,
    IGNIS_OP_MAX,
    IGNIS_OP_AVG,
    IGNIS_OP_COUNT
} ignis_op;

/* --- creating, splitting, destroying --- */

/*  How the data of a communicator travels. */
typedef enum ignis_comm_transport {
    /* IGNIS_COMM_PEER, or IGNIS_COMM_STAGED if that does not work between all ranks; NCCL for several hosts,
       or more than IGNIS_COMM_MAX_RANKS ranks */
    IGNIS_COMM_TRANSPORT_DEFAULT = 0,
    IGNIS_COMM_PEER,   /* GPUs read and write each other's memory (NVLink, PCIe) */
    IGNIS_COMM_STAGED, /* through pinned host memory that all ranks map */
    IGNIS_COMM_NCCL,   /* through NCCL */
    IGNIS_COMM_TRANSPORT_COUNT
} ignis_comm_transport;

/*  A rendezvous and its secret, created by rank 0 and distributed by the program. */
typedef struct ignis_comm_id {
    unsigned char bytes[IGNIS_COMM_ID_BYTES];
} ignis_comm_id;

typedef struct ignis_comm_desc {
    int rank; /* with size: this rank, 0 to size - 1 (0) */
    int size; /* number of ranks (0: rank, size and device come from the environment) */
    /* the rendezvous: "dir:/path" of a private folder, or "host:port" (IGNIS_COMM_DIR, MASTER_ADDR) */
    const char *rendezvous;
    /* with "host:port": a secret that all ranks know (IGNIS_COMM_TOKEN; without one, only this host) */
    const char *token;
    int device;       /* the LOCAL_RANK-th device, or the only one; IGNIS_DEVICE_0 for device 0 */
    double timeout_s; /* the deadline of every wait, at the rendezvous and inside operations (30) */
    /* a transport that must be used, or the call fails (IGNIS_COMM_TRANSPORT=peer, staged or nccl; the
       best) */
    ignis_comm_transport transport;
    /* instead of rendezvous and token: the id that ignis_comm_unique_id returned on rank 0 */
    const ignis_comm_id *id;
    /* blocks of a kernel, one an SM (the fastest number): see ON SEVERAL COMMUNICATORS */
    int most_blocks;
    /* a rank from which nothing comes for this time counts as dead, from 0.1; equal on all ranks: see WHEN A RANK DIES
       (IGNIS_COMM_HEARTBEAT, none) */
    double heartbeat_s;
} ignis_comm_desc;

typedef struct ignis_comm_info {
    int rank, size;
    int device;                     /* of this rank */
    int local_rank, local_size;     /* among the ranks on this host */
    int hosts;                      /* of the ranks */
    ignis_comm_transport transport; /* the one in use */
    char reason[256];               /* why this transport */
    ignis_status status; /* IGNIS_OK, or what broke the communicator: _PEER, _TIMEOUT, _MISMATCH, of NCCL _CUDA */
    int failed_rank;     /* the rank at fault; -1: none or unknown */
    double timeout_s;
} ignis_comm_info;

/*  ignis_comm_init - meet the other ranks and create a communicator of all; desc may be null for all defaults
    Every rank calls it, each for its own device. Rank and size come from desc, or else from the environment
    (see ON STARTING in the manual); if neither sets them, there is one rank. Ranks are processes, or threads
    of one process that each set desc.rank.
    Returns: the communicator, or no handle.
    Errors: ARGUMENT (desc, or the environment contradicts itself), DEVICE, PEER (a rank was refused, died or
    uses another's GPU), TIMEOUT (the missing ranks are named), IO, UNSUPPORTED (the requested transport),
    LIBRARY (NCCL is needed and missing), MEMORY, CUDA.
    Ownership: the caller frees it with ignis_comm_destroy. desc and its strings are copied.
    Threads: any; waits for the other ranks. Memory: one region on each GPU; every other rank maps it. */
IGNIS_API ignis_comm ignis_comm_init(const ignis_comm_desc *desc);

/*  ignis_comm_unique_id - create a rendezvous and its secret for the ranks of one ignis_comm_init
    Rank 0 calls it, and the program gives the id to the others, as MPI programs do with NCCL's: if (rank ==
    0) ignis_comm_unique_id(&id); MPI_Bcast(&id, sizeof id, MPI_BYTE, 0, MPI_COMM_WORLD); desc.id = &id on all
    ranks. Rank 0 listens from here on, at a port that the system chooses, on all addresses of this host; on
    Windows it listens at a pipe from ignis_comm_init on. Keep the id secret: every process that knows it can
    take part.
    Returns: IGNIS_OK, and *id filled.
    Errors: ARGUMENT, MEMORY, PEER (no port is free).
    Ownership: an id is used once; unused ones listen until ignis_shutdown.
    Threads: any. */
IGNIS_API ignis_status ignis_comm_unique_id(ignis_comm_id *id);

/*  ignis_comm_split - create communicators of the ranks with equal colors
    All ranks of comm call it, in order with its operations. New ranks are ordered by key, then by their rank
    in comm. A rank with a color below 0 gets none. Communicators of ignis_comm_init_all are split by
    ignis_comm_split_all.
    Returns: the new communicator; no handle on failure, and for a color below 0. After a TIMEOUT on any rank,
    all call it again.
    Errors: FREED, PEER, TIMEOUT, MISMATCH (a rank is in ignis_comm_shrink), UNSUPPORTED, LIBRARY, MEMORY,
    CUDA.
    Ownership: the caller ends it with ignis_comm_destroy, before or after comm.
    Threads: any; a second split or shrink of comm waits for the first. Waits for the other ranks. */
IGNIS_API ignis_comm ignis_comm_split(ignis_comm comm, int color, int key);

/*  ignis_comm_shrink - create a communicator of the ranks that are still alive
    ignis_comm_shrink_without - also exclude ranks that may be alive, but are stopped or out of reach All of
    them call it, after comm has failed or before. They first agree on the missing ranks; the others keep
    their order. comm itself does not change; destroy it. Late writes of dead ranks go to its memory, which is
    not used again. Communicators of ignis_comm_init_all are shrunk by ignis_comm_shrink_all. For
    ignis_comm_shrink_without, all remaining ranks name the same ranks, in any order; dead ranks need not be
    named. An excluded rank gets MISMATCH when it calls ignis_comm_shrink, and destroys comm.
    Returns: the new communicator, or no handle. After a TIMEOUT on any rank, all call it again.
    Errors: FREED, TIMEOUT (a live rank does not call it), MISMATCH (a rank excludes other ranks), ARGUMENT
    (ranks contains this rank, or a rank that comm does not have; count below 0), and those of
    ignis_comm_init.
    Ownership: the caller frees it with ignis_comm_destroy, and comm too.
    Threads: any; a second split or shrink of comm waits for the first. Waits for the other ranks. */
IGNIS_API ignis_comm ignis_comm_shrink(ignis_comm comm);
IGNIS_API ignis_comm ignis_comm_shrink_without(ignis_comm comm, const int *ranks, int count);

/*  ignis_comm_grow - create a communicator of the ranks that are alive and of ranks that join them
    All living ranks of comm call it, between two steps: after comm has failed, after ignis_comm_shrink, or without
    deaths. The ranks that join call ignis_comm_init, in new processes, with the meeting place of the others. desc.size
    is the number of ranks from now on (0: as many as met at the ignis_comm_init that comm comes from). Each rank keeps
    the rank that it had there, and device; those that join take the other ranks, rank 0 too. Of desc (null: all
    defaults) rank and device are not used; other fields that are zero are as they were at that ignis_comm_init, except
    an id, which is used once. comm itself does not change; destroy it. See RANKS THAT COME BACK.
    Returns: the new communicator, or no handle; comm then is as before. After a failure on any rank, all call it
    again.
    Errors: FREED, ARGUMENT (desc; a size that has no place for this rank; no id), UNSUPPORTED (communicators of
    ignis_comm_init_all, dry runs, a thread that captures a graph), TIMEOUT (a rank did not come: it is named), PEER (a
    rank comes from another job, has other options or another's GPU, or died meanwhile), and those of ignis_comm_init.
    Ownership: the caller frees it with ignis_comm_destroy, and comm too.
    Threads: any; waits for the other ranks. */
IGNIS_API ignis_comm ignis_comm_grow(ignis_comm comm, const ignis_comm_desc *desc);

/*  ignis_comm_abort - break a communicator on all ranks: waiting operations end with PEER everywhere
    Returns: IGNIS_OK, also if it is already broken.
    Errors: FREED.
    Ownership: it still has to be destroyed.
    Threads: any, also during an operation of another thread. Does not wait. */
IGNIS_API ignis_status ignis_comm_abort(ignis_comm comm);

/*  ignis_comm_destroy - leave a communicator, after all work on its device is done
    The other ranks may still be in their last operation, and may call it later. The last communicator of one
    ignis_comm_init, and of those derived from it, tells the other ranks that this one leaves. With several
    hosts, the ranks of this host then have up to 5 s to do the same, so that NCCL completes their last
    operation. Graphs with captured operations may outlive the communicator; they then end at once, with
    undefined results.
    Returns: IGNIS_OK, or the first driver error; everything is released in any case.
    Errors: FREED (also for a second destroy), CUDA.
    Ownership: the handle is stale afterwards.
    Threads: any. Waits for the device. */
IGNIS_API ignis_status ignis_comm_destroy(ignis_comm comm);

/*  ignis_comm_query - read rank, size, transport and its reason, and whether the communicator works
    Returns: IGNIS_OK, and *info filled.
    Errors: ARGUMENT, FREED.
    Ownership: nothing to free.
    Threads: any. */
IGNIS_API ignis_status ignis_comm_query(ignis_comm comm, ignis_comm_info *info);

/*  ignis_comm_init_all - create the communicators of several devices of this process
    comms[i] is rank i, on devices[i]. devices may be null: the first count devices. Of desc (null: all
    defaults) only timeout_s and most_blocks are used. One thread may call an operation on each in turn, since
    operations do not wait; or each has its own thread.
    Returns: IGNIS_OK, and *comms filled; all zero on failure.
    Errors: ARGUMENT (desc, a device twice, count below 1 or above IGNIS_COMM_MAX_RANKS), DEVICE, UNSUPPORTED
    (two devices cannot reach each other's memory), MEMORY, CUDA.
    Ownership: the caller frees each with ignis_comm_destroy.
    Threads: any. Waits for the devices. */
IGNIS_API ignis_status ignis_comm_init_all(ignis_comm *comms, const int *devices, int count,
                                           const ignis_comm_desc *desc);

/*  ignis_comm_split_all - split all communicators of a group of ignis_comm_init_all in one call
    comms are all ranks of one group, in any order: of one ignis_comm_init_all, of one ignis_comm_shrink_all,
    or of one color of an ignis_comm_split_all. comms[i] has colors[i] and keys[i]; without keys (null) the
    order of the group stays. out[i] is the new communicator on the device of comms[i]; no handle for a color
    below 0. comms do not change.
    Returns: IGNIS_OK, and *out filled; all zero on failure.
    Errors: FREED, ARGUMENT (not all ranks of one group), UNSUPPORTED (communicators of ignis_comm_init),
    DEVICE, MEMORY, CUDA.
    Ownership: the caller frees each with ignis_comm_destroy, before or after comms.
    Threads: any. Waits for the devices: first begin on all ranks what one has begun. */
IGNIS_API ignis_status ignis_comm_split_all(const ignis_comm *comms, const int *colors, const int *keys, int count,
                                            ignis_comm *out);

/*  ignis_comm_shrink_all - shrink all communicators of a group of ignis_comm_init_all in one call
    comms are of one group, in any order, after they have failed or before. Ranks without a handle in comms
    are excluded; the others keep their order. out[i] is the new communicator on the device of comms[i]; no
    handle where comms has none. comms do not change; destroy them. After a device fault it fails, as a fault
    ends all GPU work of a process. To survive the fault of another rank, ranks are separate processes with
    ignis_comm_init and ignis_comm_shrink.
    Returns: IGNIS_OK, and *out filled; all zero on failure.
    Errors: FREED, ARGUMENT (not ranks of one group), UNSUPPORTED (communicators of ignis_comm_init), DEVICE
    (lost to a fault), MEMORY, CUDA.
    Ownership: the caller frees each with ignis_comm_destroy, and comms too.
    Threads: any. Waits for the devices, as ignis_comm_split_all. */
IGNIS_API ignis_status ignis_comm_shrink_all(const ignis_comm *comms, int count, ignis_comm *out);

/*  >>comm.operations - collective operations and messages

    All ranks call the same operations on a communicator in the same order, with arrays of equal size and dtype, each
    on its own device. An operation is queued on the current stream of the communicator's device and returns. Its
    success is reported by ignis_comm_synchronize, ignis_comm_status, or the next operation. The deadline of a wait
    starts when the kernel runs. After a failure results are undefined, and the communicator is broken: it refuses all
    later operations.

    in == out is allowed, and so is the slice of one array at which the operation puts its data (all_gather: in is
    slice `rank` of out; reduce_scatter: out is slice `rank` of in). The arrays must be owned by IGNIS_OWNER_IGNIS;
    while a call queues its work, IGNIS_OWNER_NVCCL owns them. All operations can be captured in graphs. A graph is
    launched on every rank, in order with other operations on the communicator, and not during one on another stream.
    On several streams, a later operation of a communicator waits for the earlier ones.

    Sums and products of f16 and bf16 are computed in f32 and rounded once. Every algorithm of Ignis combines in the
    order of the ranks, so all ranks get equal bits, on every run and transport. Results of NCCL (see ON SPEED in the
    manual) are equal on all ranks, and on every run with the same NCCL and GPUs; another size or machine may give
    other bits. min and max give NaN if any rank has NaN. IGNIS_OP_AVG is the sum times 1/size, for floating types.

    For measurements only: IGNIS_COMM_TUNE="blocks=32,chunk=128K,...", equal on all ranks, overrides how operations
    are launched; see ignis__comm_tune. */

/*  ignis_comm_all_reduce - reduce in over the ranks, elementwise, to out on every rank
    ignis_comm_reduce - reduce in over the ranks to out on rank root; on other ranks out is unused
    ignis_comm_broadcast - copy array of rank root to array of every rank
    ignis_comm_all_gather - concatenate in of all ranks to out on every rank; out has size times as many
    elements
    ignis_comm_reduce_scatter - reduce slice r of in over the ranks to out on rank r; in has size times as
    many elements
    ignis_comm_all_to_all - send slice r of in to rank r, and receive slice r of out from it; both have a
    multiple of size elements
    Returns: IGNIS_OK when it is queued, or the reason.
    Errors: FREED, CONTRACT (an array has another owner), SHAPE (in and out do not fit), DTYPE (dtypes
    differ), UNSUPPORTED (the average of integers), DEVICE, ARGUMENT (overlap, op or root), PEER (the
    communicator is broken), MEMORY, COMPILE, CUDA.
    Ownership: unchanged.
    Threads: one operation on a communicator at a time; others wait. Does not wait for the device.
    Streams: queued on the current stream of the communicator's device. */
IGNIS_API ignis_status ignis_comm_all_reduce(ignis_comm comm, ignis_array in, ignis_array out, ignis_op op);
IGNIS_API ignis_status ignis_comm_reduce(ignis_comm comm, ignis_array in, ignis_array out, ignis_op op, int root);
IGNIS_API ignis_status ignis_comm_broadcast(ignis_comm comm, ignis_array array, int root);
IGNIS_API ignis_status ignis_comm_all_gather(ignis_comm comm, ignis_array in, ignis_array out);
IGNIS_API ignis_status ignis_comm_reduce_scatter(ignis_comm comm, ignis_array in, ignis_array out, ignis_op op);
IGNIS_API ignis_status ignis_comm_all_to_all(ignis_comm comm, ignis_array in, ignis_array out);

/*  ignis_comm_send, ignis_comm_recv - send array to rank dest, or receive it from rank source
    ignis_comm_send_recv - send in to rank dest and receive out from rank source at the same time, without
    overlap The receiver's next ignis_comm_recv from this rank has an array of equal size and dtype. Each pair
    of ranks has its own order, independent of other operations. A long send ends only when the peer receives,
    so two ranks that both send first wait until the deadline; ignis_comm_send_recv does not.
    Returns: IGNIS_OK when it is queued, or the reason.
    Errors: as ignis_comm_all_reduce, and ARGUMENT (dest or source is this rank, or out of range).
    Ownership: unchanged.
    Threads: one operation on a communicator at a time; others wait. Does not wait for the device.
    Streams: queued on the current stream of the communicator's device. */
IGNIS_API ignis_status ignis_comm_send(ignis_comm comm, ignis_array array, int dest);
IGNIS_API ignis_status ignis_comm_recv(ignis_comm comm, ignis_array array, int source);
IGNIS_API ignis_status ignis_comm_send_recv(ignis_comm comm, ignis_array in, int dest, ignis_array out, int source);

/*  ignis_comm_barrier - make the streams of all ranks wait for each other
    Returns: IGNIS_OK when it is queued, or the reason.
    Errors: FREED, PEER (the communicator is broken), COMPILE, CUDA.
    Ownership: nothing to free.
    Threads: one operation on a communicator at a time; others wait. Does not wait for the device.
    Streams: queued on the current stream of the communicator's device. */
IGNIS_API ignis_status ignis_comm_barrier(ignis_comm comm);

/*  ignis_comm_synchronize - wait until the queued operations of comm are done, and report their failure
    Captured operations count if their graph was launched on the current stream.
    Returns: IGNIS_OK, or the reason.
    Errors: FREED, UNSUPPORTED (this thread captures), TIMEOUT (a rank did not come), MISMATCH (ranks called
    different operations), PEER (a rank died or aborted, or its NCCL failed), CUDA (also if NCCL reports an
    error here).
    Ownership: nothing to free.
    Threads: any. Waits for the current stream of the device, and for the last stream of comm. */
IGNIS_API ignis_status ignis_comm_synchronize(ignis_comm comm);

/*  ignis_comm_status - tell if comm works; does not wait
    Returns: IGNIS_OK, or TIMEOUT, MISMATCH, PEER or CUDA, which broke it.
    Errors: FREED, TIMEOUT, MISMATCH, PEER, CUDA (NCCL has failed).
    Ownership: nothing to free.
    Threads: any. */
IGNIS_API ignis_status ignis_comm_status(ignis_comm comm);

#ifndef IGNIS_MODEL_PARALLEL_INCLUDED
#define IGNIS_MODEL_PARALLEL_INCLUDED
/*  parallel.h - the ranks that share a model. ignis_models.h and ignis_collective.h both declare them, in any
    order. */

/*  The GPUs that share a model, one rank each. ignis_comm_parallel of ignis_collective.h makes it of a
    communicator. ignis_model_inspect needs rank and size only. */
typedef struct ignis_model_parallel {
    int rank, size; /* 0, 0: the model is not shared */
    uint64_t group; /* passed to the functions */
    /* array = its sum over the ranks, the same bits on all: queued on the current stream, captured by graphs */
    ignis_status (*sum_fn)(uint64_t group, ignis_array array);
    ignis_status (*check_fn)(uint64_t group); /* the failure of the sums that are done; does not wait */
} ignis_model_parallel;
#endif

/*  >>parallel.model - communicators for models that several ranks share

    Part of the interface of models, so it exists with ignis_models.h only.
    ignis_model_open reads the struct; the communicator must live as long as the model.
    See ON MODELS OF SEVERAL GPUS. */

/*  ignis_comm_parallel - return ignis_model_desc.parallel for a model that the ranks of comm share
    See ON MODELS OF SEVERAL GPUS.
    Returns: the rank, the size and the functions that sum; size -1 on failure, which ignis_model_open
    refuses.
    Errors: FREED.
    Ownership: nothing to free; free the model before comm is destroyed.
    Threads: any. */
IGNIS_API ignis_model_parallel ignis_comm_parallel(ignis_comm comm);

/* >>parallel - data-parallel training ---------------------------------------------------------------------------

   Every rank has the whole model and a slice of the batch; ignis_backward averages the gradients over the ranks.
   Buckets of gradients are all-reduced while the backward pass goes on.
   Ownership: the caller frees the handle before its communicator. */

#ifndef IGNIS_NO_TENSORS

/*  Data-parallel training: every rank has the whole model and a slice of the batch, and gradients are
    averaged. */
typedef struct ignis_parallel {
    uint64_t id;
} ignis_parallel;

/*  State of which each rank has a part, instead of all of it (ZeRO: Rajbhandari et al., 2020). */
typedef enum ignis_shard {
    IGNIS_SHARD_NONE,
    IGNIS_SHARD_OPTIMIZER,  /* the state of optimizers: ZeRO-1 */
    IGNIS_SHARD_GRADIENTS,  /* gradients, too, except within ignis_backward and in sections without averages: ZeRO-2 */
    IGNIS_SHARD_PARAMETERS, /* parameters, too, which are gathered while operations use them: ZeRO-3 */
    IGNIS_SHARD_COUNT
} ignis_shard;

#define IGNIS_SHARD_RANKS_HOST (-1) /* ignis_parallel_desc.shard_ranks: those of each host */

typedef struct ignis_parallel_desc {
    int64_t bucket_bytes; /* size of a bucket of gradients, and with shards of parameters (25 MiB) */
    /* size of the first gradient bucket (1 MiB); smaller starts communication earlier */
    int64_t first_bucket_bytes;
    /* true: parameters are not broadcast and must be equal on all ranks; else they become those of rank 0 */
    bool no_broadcast;
    /* of which each rank has a part only: ON SHARDS in the manual. Changes no bit of the weights, unless NCCL computes
       (IGNIS_SHARD_NONE) */
    ignis_shard shard;
    /* the number of ranks that divide a copy of it: the first ones, the next ones, and so on; it divides the number of
       all. Or IGNIS_SHARD_RANKS_HOST (0: all ranks). ON SHARDS has the order of sums */
    int shard_ranks;
} ignis_parallel_desc;

typedef struct ignis_parallel_info {
    int parameters;
    int buckets;   /* of gradients, one all-reduce each; 0 with one rank */
    int64_t bytes; /* of the gradients in all buckets, on this rank */
    ignis_shard shard;
    int shard_ranks; /* ranks that divide a copy of what is shared; 1 without shards */
    bool syncs;      /* the next ignis_backward averages: no section of ignis_parallel_no_sync_begin is open */
} ignis_parallel_info;

/*  ignis_parallel_create - make ignis_backward average the gradients of parameters over the ranks of comm
    All ranks call it with the same parameters in the same order. The order of use is best: gradients of the
    last parameters are reduced first. From then on an ignis_backward that reaches one of them averages the
    gradients of all, so all ranks call it alike. A parameter that it did not reach takes part with its
    present gradient, zero at first. On return all-reduces may still run on another stream, for which the
    thread's stream waits. A captured graph contains all of this. desc may be null for all defaults. The
    gradients move into buckets, and with shards the parameters, too, so call it before a graph is captured. Call
    it before ignis_optimizer_add, too: an optimizer of 16-bit parameters copies them.
    Returns: the handle, or no handle.
    Errors: ARGUMENT (no parameters, not a leaf that requires a gradient, one twice or in use by another, with
    shards one that an optimizer has, sizes, shard, shard_ranks), FREED, DEVICE (not the communicator's),
    UNSUPPORTED (this thread captures; groups of ignis_comm_init_all), MISMATCH, PEER and TIMEOUT (other ranks),
    LIBRARY (NCCL, for groups on several hosts), MEMORY, CUDA. With IGNIS_SHARD_PARAMETERS operations that use a
    parameter have the errors of ignis_comm_all_gather, too, and UNSUPPORTED (parameters of more than 16 buckets).
    Ownership: the caller frees it, before comm is destroyed. It holds the parameters; the caller may release
    their handles at any time.
    Threads: any; waits for the other ranks. One ignis_backward at a time may average; another one meanwhile
    is an error, PARALLEL_BUSY. In sections without averages any number may run. */
IGNIS_API ignis_parallel ignis_parallel_create(ignis_comm comm, const ignis_tensor *parameters, int count,
                                               const ignis_parallel_desc *desc);

/*  ignis_parallel_no_sync_begin, ignis_parallel_no_sync_end - open or close a section without averages
    In it, ignis_backward accumulates gradients on each rank alone. Run all micro-batches but the last one in
    such a section; the last one averages the sum. Sections nest.
    Returns: IGNIS_OK, or the reason.
    Errors: FREED, ARGUMENT (no section is open).
    Ownership: nothing to free.
    Threads: any, not during a backward. */
IGNIS_API ignis_status ignis_parallel_no_sync_begin(ignis_parallel parallel);
IGNIS_API ignis_status ignis_parallel_no_sync_end(ignis_parallel parallel);

/*  ignis_parallel_query - read facts about data-parallel training
    Returns: IGNIS_OK, and *info filled.
    Errors: ARGUMENT, FREED.
    Ownership: nothing to free.
    Threads: any. */
IGNIS_API ignis_status ignis_parallel_query(ignis_parallel parallel, ignis_parallel_info *info);

/*  ignis_parallel_regroup - go on with the ranks of another communicator
    For ranks that come back: those that live on call it with the communicator of ignis_comm_grow, while those that join
    call ignis_parallel_create on theirs, with the same parameters and desc, and no_broadcast. Parameters and the state
    of optimizers stay as they are, on this rank; ignis_training_regroup then makes them those of one step on all ranks.
    Gradients that ranks share are dropped. With shards every rank has the place among the ranks that it had. Before,
    free graphs with operations of the training.
    Returns: IGNIS_OK, or the reason. After a failure call it again, with the communicator of another
    ignis_comm_grow; until then a backward pass and a step fail.
    Errors: FREED, ARGUMENT (other ranks than before, an ignis_backward averages), DEVICE (not the parameters'),
    UNSUPPORTED (this thread captures; ranks no longer reach each other's memory, or now do), MISMATCH, PEER and TIMEOUT
    (other ranks), LIBRARY, MEMORY, CUDA.
    Ownership: comm now has to live until ignis_parallel_free; the communicator before may be destroyed.
    Threads: any, not during a backward or a step; waits for the device and for the other ranks. */
IGNIS_API ignis_status ignis_parallel_regroup(ignis_parallel parallel, ignis_comm comm);

/*  ignis_parallel_free - stop averaging gradients; they stay in their memory, but for those that ranks share
    With shards, its optimizers can only be freed afterwards, and with IGNIS_SHARD_PARAMETERS the parameters, too. With
    shard_ranks all ranks free it at about the same time: where NCCL joins hosts, a rank waits up to 5 s for the others.
    Returns: IGNIS_OK, or the reason.
    Errors: FREED, UNSUPPORTED (this thread captures), CUDA.
    Ownership: the handle is stale afterwards.
    Threads: any, not during a backward or a step. Waits for running all-reduces. */
IGNIS_API ignis_status ignis_parallel_free(ignis_parallel parallel);

/*  ignis_comm_ranks - return ignis_training_desc.ranks for a training that the ranks of comm save and load together
    Returns: the rank, the size and the function that sums; size -1 on failure, which ignis_training_create refuses.
    Errors: FREED.
    Ownership: nothing to free; free the training before comm is destroyed.
    Threads: any. */
IGNIS_API ignis_ranks ignis_comm_ranks(ignis_comm comm);

#endif /* IGNIS_NO_TENSORS */

/* >>parallel.tensor - tensor-parallel training: matrices that ranks divide -----------------------------------------

   The ranks of a communicator have the same rows of a batch, and each has a part of the matrices. Operations on tensors
   exchange what the parts need; their gradients exchange, too. See ON TENSOR-PARALLEL TRAINING.
   All ranks call them, and ignis_backward, in the same order with tensors of equal shape and dtype. Sums over the ranks
   have the order of the ranks: equal inputs give equal bits, on all ranks (NCCL: see ON SPEED).
   Their gradients have no gradients: ignis_grad with create_graph refuses them. */

#ifndef IGNIS_NO_TENSORS

/*  ignis_comm_all_reduce_forward - the sum of a tensor over the ranks; the gradient passes unchanged
    ignis_comm_all_reduce_backward - the tensor itself; its gradient is summed over the ranks
    The second one comes before matrices that are divided by columns, the first one after those divided by
    rows (g and f of Shoeybi et al., Megatron-LM, 2019). Both need the gradient of a result to be equal on all
    ranks, or a part of it on each, as those of divided layers are.
    Shapes: any. f16 and bf16 are summed in f32, and rounded once.
    Returns: the tensor, or no handle.
    Errors: FREED, and those of ignis_comm_all_reduce; in backward those, too.
    Ownership: as ignis_tensor_from_host. comm must live until backward.
    Threads: one operation on a communicator at a time; others wait. Streams: queued on the current stream of the
    communicator's device. */
IGNIS_API ignis_tensor ignis_comm_all_reduce_forward(ignis_comm comm, ignis_tensor x);
IGNIS_API ignis_tensor ignis_comm_all_reduce_backward(ignis_comm comm, ignis_tensor x);

/*  ignis_comm_all_gather_rows - concatenate the tensors of all ranks along the first dimension; its gradient is
    reduce-scattered
    ignis_comm_reduce_scatter_rows - sum a tensor over the ranks and keep this rank's rows; its gradient is
    all-gathered
    ignis_comm_slice_rows - keep this rank's rows of a tensor that all ranks have; its gradient is all-gathered
    ignis_comm_all_gather_columns - concatenate along the last dimension; this rank keeps its columns of the
    gradient
    The first three are for norms, dropout and residuals on rows that are divided, too (sequence parallelism:
    Korthikanti et al., Reducing Activation Recomputation in Large Transformer Models, 2022). The gradient of
    gathered rows is summed, as each rank uses them for a part of a matrix; that of gathered columns is not, as
    all ranks use them alike.
    Shapes: [rows, ...] becomes [rows * ranks, ...] or [rows / ranks, ...], [..., n] becomes [..., n * ranks].
    Returns: the tensor, or no handle.
    Errors: FREED, SHAPE (rows are not a multiple of the ranks), and those of ignis_comm_all_gather and
    ignis_comm_reduce_scatter; in backward those, too.
    Ownership: as ignis_tensor_from_host. comm must live until backward.
    Threads: as ignis_comm_all_reduce_forward. Streams: queued on the current stream of the communicator's
    device. */
IGNIS_API ignis_tensor ignis_comm_all_gather_rows(ignis_comm comm, ignis_tensor x);
IGNIS_API ignis_tensor ignis_comm_reduce_scatter_rows(ignis_comm comm, ignis_tensor x);
IGNIS_API ignis_tensor ignis_comm_slice_rows(ignis_comm comm, ignis_tensor x);
IGNIS_API ignis_tensor ignis_comm_all_gather_columns(ignis_comm comm, ignis_tensor x);

/*  ignis_column_parallel_linear - ignis_linear of a matrix whose outputs the ranks divide
    ignis_row_parallel_linear - of a matrix whose inputs they divide
    Each rank has rows [out / ranks, in] of the weight, and of the bias, or columns [out, in / ranks] and the
    whole bias. So the result of the first one is the input of the second one, with operations of elements or
    heads between them. The first one sums the gradient of x over the ranks in backward, and does not
    communicate before; ignis_comm_all_gather_columns makes its result whole. The second one sums over the ranks
    in forward, adds the bias after that, and does not communicate in backward. Several matrices of one input
    need one sum: ignis_linear on one ignis_comm_all_reduce_backward(comm, x).
    Shapes: x [..., in]; the result [..., out / ranks]; or x [..., in / ranks]; the result [..., out]. bias may
    be no handle.
    Returns: the tensor, or no handle.
    Errors: those of ignis_linear, ignis_add and ignis_comm_all_reduce_forward.
    Ownership: as ignis_tensor_from_host. comm must live until backward.
    Threads: as ignis_comm_all_reduce_forward. Streams: queued on the current stream of the communicator's
    device. */
IGNIS_API ignis_tensor ignis_column_parallel_linear(ignis_comm comm, ignis_tensor x, ignis_tensor w, ignis_tensor bias);
IGNIS_API ignis_tensor ignis_row_parallel_linear(ignis_comm comm, ignis_tensor x, ignis_tensor w, ignis_tensor bias);

/*  ignis_vocab_parallel_embedding - ignis_embedding of a table whose rows the ranks divide
    Rank r has rows r * m to (r + 1) * m - 1 of m * ranks rows. A vocabulary that is not a multiple of the ranks
    has padding at its end. All ranks pass the same ids and get the same rows: a sum over the ranks. An id outside of
    the table gives a row of NaN, and no gradient.
    Shapes: table [m, n]; ids, of i32 or i64, any; the result is that of ids with n appended.
    Returns: the tensor, or no handle.
    Errors: those of ignis_embedding and ignis_comm_all_reduce_forward; UNSUPPORTED (2^24 rows or more together).
    Ownership: as ignis_tensor_from_host. comm must live until backward.
    Threads: as ignis_comm_all_reduce_forward. Streams: queued on the current stream of the communicator's
    device. */
IGNIS_API ignis_tensor ignis_vocab_parallel_embedding(ignis_comm comm, ignis_tensor table, ignis_tensor ids);

/*  ignis_vocab_parallel_cross_entropy - ignis_cross_entropy of logits whose columns the ranks divide
    Rank r has columns r * m to (r + 1) * m - 1 of all m * ranks. The ranks exchange three numbers for each row:
    the largest logit, the sum of the exponentials, and the loss of the target; backward does not communicate.
    All ranks pass the same targets, numbers of classes of the whole vocabulary, and get the same loss, up to
    the bit. desc as of ignis_cross_entropy, and may be null; desc->classes counts the classes of all ranks: later
    columns are padding, as of a vocabulary that is not a multiple of the ranks (all columns of all ranks). Logits
    are read twice in forward, once more with label_smoothing, and in backward, which needs them.
    Shapes: logits [..., m]; targets, of i32 or i64, [...]; the result is [1] or [...], of f32, or f64 for
    logits of f64.
    Returns: the tensor, or no handle.
    Errors: those of ignis_cross_entropy and ignis_comm_all_reduce; ARGUMENT (desc->classes outside of 1 to the
    columns of all ranks); UNSUPPORTED (2^24 columns or more together).
    Ownership: as ignis_tensor_from_host.
    Threads: as ignis_comm_all_reduce_forward. Streams: queued on the current stream of the communicator's
    device. */
IGNIS_API ignis_tensor ignis_vocab_parallel_cross_entropy(ignis_comm comm, ignis_tensor logits, ignis_tensor targets,
                                                          const ignis_cross_entropy_desc *desc);

/*  ignis_comm_clip_grad_norms - ignis_clip_grad_norms with the norm of the gradients of all ranks of comm
    Each rank has a part of the parameters of the first `divided` optimizers; parameters of the others are equal
    on all ranks, and count once. The ranks sum the squares, so all clip by the same factor, and with loss
    scales skip the same steps: with a loss scale, call it before each step, as ignis_optimizer_step alone sees
    this rank. Optimizers with shards (ignis_parallel_desc.shard) sum over the ranks of those first.
    Returns: IGNIS_OK, or the reason.
    Errors: those of ignis_clip_grad_norms; ARGUMENT (divided outside of 0 to count), and those of
    ignis_comm_all_reduce.
    Ownership: unchanged.
    Threads: as ignis_comm_all_reduce_forward. Streams: queued on the current stream of the communicator's
    device. */
IGNIS_API ignis_status ignis_comm_clip_grad_norms(ignis_comm comm, const ignis_optimizer *optimizers, int count,
                                                  int divided, double max_norm);

#endif /* IGNIS_NO_TENSORS */

#ifdef __cplusplus
} /* extern "C" */

/*  In C++ option structs can be passed by reference: ignis_vmm_create({...}). */
static inline ignis_vmm ignis_vmm_create(const ignis_vmm_desc &desc) { return ignis_vmm_create(&desc); }
static inline ignis_array ignis_vmm_array(const ignis_vmm_array_desc &desc) { return ignis_vmm_array(&desc); }
static inline ignis_array ignis_vmm_array_map(ignis_vmm_range range, int64_t offset, const ignis_array_desc &desc)
{
    return ignis_vmm_array_map(range, offset, &desc);
}
static inline ignis_channel ignis_channel_serve(const ignis_channel_desc &desc) { return ignis_channel_serve(&desc); }
static inline ignis_channel ignis_channel_connect(const ignis_channel_desc &desc)
{
    return ignis_channel_connect(&desc);
}
static inline ignis_transport ignis_transport_create(const ignis_transport_desc &desc)
{
    return ignis_transport_create(&desc);
}
static inline ignis_array ignis_ipc_array(const ignis_array_desc &desc) { return ignis_ipc_array(&desc); }
static inline ignis_comm ignis_comm_init(const ignis_comm_desc &desc) { return ignis_comm_init(&desc); }
static inline ignis_comm ignis_comm_grow(ignis_comm comm, const ignis_comm_desc &desc)
{
    return ignis_comm_grow(comm, &desc);
}
static inline ignis_status ignis_comm_init_all(ignis_comm *comms, const int *devices, int count,
                                               const ignis_comm_desc &desc)
{
    return ignis_comm_init_all(comms, devices, count, &desc);
}
#ifndef IGNIS_NO_TENSORS
static inline ignis_parallel ignis_parallel_create(ignis_comm comm, const ignis_tensor *parameters, int count,
                                                   const ignis_parallel_desc &desc)
{
    return ignis_parallel_create(comm, parameters, count, &desc);
}
static inline ignis_tensor ignis_vocab_parallel_cross_entropy(ignis_comm comm, ignis_tensor logits,
                                                              ignis_tensor targets,
                                                              const ignis_cross_entropy_desc &desc)
{
    return ignis_vocab_parallel_cross_entropy(comm, logits, targets, &desc);
}
#endif
#endif

#endif /* IGNIS_COLLECTIVE_INCLUDED */

#ifdef IGNIS_IMPLEMENTATION
#ifndef IGNIS_COLLECTIVE_IMPLEMENTED
#define IGNIS_COLLECTIVE_IMPLEMENTED
#ifdef ignis_comm_init
#error "IGNIS_TRACE_CALLS: define IGNIS_IMPLEMENTATION before the first #include of ignis_collective.h"
#endif
#ifdef IGNIS__AT /* what the implementation calls keeps the call site of the program */
#undef IGNIS__AT
#define IGNIS__AT(call) call
#endif

/*  collective - what is opened and closed of ignis_collective.h. */

/*  Sections in the order of the floors; ignis_shutdown closes them in reverse order. */
typedef enum ignis__section {
    IGNIS__SECTION_VMM,
    IGNIS__SECTION_CHANNEL,
    IGNIS__SECTION_TRANSPORT,
    IGNIS__SECTION_JOB,
    IGNIS__SECTION_COMM,
    IGNIS__SECTION_PARALLEL,
    IGNIS__SECTION_COUNT
} ignis__section;


/*  >>collective.setup - what to close at ignis_shutdown

    Keeps one close function a section of this header. A section registers its function at its first use;
    ignis_shutdown then calls them, the sections that build on others first.
    Uses: ignis__closers of ignis.h.
    Locks: ignis__sections.lock, around the table alone. */

static struct {
    ignis__mutex lock;
    void (*close[IGNIS__SECTION_COUNT])(const char *call);
} ignis__sections = {IGNIS__MUTEX_INIT, {NULL}};

static void ignis__sections_close(const char *call)
{
    int i;
    for (i = IGNIS__SECTION_COUNT - 1; i >= 0; i--)
        if (ignis__sections.close[i])
            ignis__sections.close[i](call);
}

IGNIS__PRIVATE void ignis__section_use(ignis__section section, void (*close)(const char *call))
{
    ignis__mutex_lock(&ignis__sections.lock);
    ignis__sections.close[section] = close;
    ignis__closers[IGNIS__CLOSE_COLLECTIVE] = ignis__sections_close;
    ignis__mutex_unlock(&ignis__sections.lock);
}

/*  Checks at the start of every public function that creates or finds an object of this header. */
IGNIS__PRIVATE bool ignis__collective_enter(const char *call)
{
    return ignis__enter(call) &&
           (!ignis__global.dry_run || ignis__fail_false(IGNIS_DIAG_UNSUPPORTED, call,
                                                        "a dry run has one device in one process; it shares nothing"));
}

/* --- what the collective layer needs of the system: handles of memory --------------------------------------------- */

/*  collective/vmm - physical memory, address ranges, mappings, access. */

#ifdef _WIN32
#include <sddl.h>
#define IGNIS__VMM_HANDLE_SYSTEM IGNIS_VMM_HANDLE_WIN32
#define IGNIS__CU_ATTRIBUTE_VMM_SYSTEM IGNIS__CU_ATTRIBUTE_VMM_WIN32
#define IGNIS__VMM_HANDLES "NT handles"
#define IGNIS__EXCHANGE_SYSTEM IGNIS_CHANNEL_PIPE /* how descriptors travel */
#endif

#ifndef _WIN32
#define IGNIS__VMM_HANDLE_SYSTEM IGNIS_VMM_HANDLE_POSIX_FD
#define IGNIS__CU_ATTRIBUTE_VMM_SYSTEM IGNIS__CU_ATTRIBUTE_VMM_POSIX_FD
#define IGNIS__VMM_HANDLES "file descriptors"
#define IGNIS__EXCHANGE_SYSTEM IGNIS_CHANNEL_SOCKET
#endif

enum {
    IGNIS__CU_ATTRIBUTE_VMM = 102,
    IGNIS__CU_ATTRIBUTE_VMM_POSIX_FD = 103,
    IGNIS__CU_ATTRIBUTE_VMM_WIN32 = 104,
    IGNIS__CU_GRANULARITY_MINIMUM = 0,
    IGNIS__CU_GRANULARITY_RECOMMENDED = 1,
    IGNIS__CU_IPC_LAZY_PEER = 1,
    IGNIS__CU_HOST_REGISTER_PORTABLE = 1,
    IGNIS__CU_HOST_REGISTER_MAPPED = 2,
    IGNIS__CU_ALREADY_ENABLED = 704
};

/*  A text such as "2 MiB", by value: one message can have several. */
typedef struct ignis__bytes_text {
    char text[32];
} ignis__bytes_text;

/*  True, and reported with the step, if a driver call failed: if (IGNIS__VMM_FAILED(call, device, cuMemMap,
    (...), "mapping %s", ...)) return false; */
#define IGNIS__VMM_FAILED(call, device, name, args, ...) \
    (!ignis__vmm_check_call(call, device, #name, IGNIS__CUDA(name, args), __VA_ARGS__))

/*  True if a call that releases something succeeded. Errors after a device fault are ignored: every call
    fails then. */
#define IGNIS__VMM_RELEASED(call, device, name, args, ...) \
    ignis__vmm_check_call(call, device, #name, ignis__vmm_release_error(IGNIS__CUDA(name, args)), __VA_ARGS__)

/*  What a device can do with virtual memory. */
typedef struct ignis__vmm_facts {
    int vmm, shareable;
    size_t granularity, recommended;
} ignis__vmm_facts;

typedef struct ignis__physical {
    uint64_t holds;
    ignis__device *device; /* the memory is on this device */
    unsigned long long handle;
    int64_t size;
    int handle_types;
    bool made; /* created here, not imported: counted in vmm_bytes */
} ignis__physical;

typedef struct ignis__vmm_block {
    ignis__address address;
    int64_t size;
    ignis__device *device; /* that uses it; imported memory may be on another one */
    ignis__physical *memory;
} ignis__vmm_block;

/*  A public handle of physical memory. The handle and each mapping hold the slot. */
typedef struct ignis__vmm {
    ignis__slot slot;
    ignis__physical *memory;
    int64_t granularity;
    bool imported;
    uint64_t mappings;
} ignis__vmm;

typedef struct ignis__mapping {
    int64_t offset, size;
    ignis__vmm *vmm;  /* held */
    uint64_t devices; /* bit d: device d has access */
    int arrays;
    struct ignis__mapping *next; /* by offset */
} ignis__mapping;

/*  A range of addresses. The slot's lock guards the mappings; an array over a slice holds the range. */
typedef struct ignis__range {
    ignis__slot slot;
    ignis__device *device; /* current at the call; calls enter its context */
    ignis__address address;
    int64_t size, granularity;
    ignis__mapping *mappings;
    int arrays;
} ignis__range;

/*  A range that is held and locked for a call, with an entered device. */
typedef struct ignis__range_use {
    ignis__range *range;
    ignis__device *device;
    ignis__binding binding;
} ignis__range_use;

#define IGNIS__RANGE_DEVICE (-2) /* the device of the range */


#ifdef _WIN32

/*  >>vmm.system_windows - NT handles as handles of memory

    Shares memory by NT handles, which only processes of this user can open. The functions have the names of
    system_posix.c.
    Uses: Windows.
    Locks: a static one for each object that is created once. */

#ifdef _MSC_VER
#pragma comment(lib, "advapi32.lib")
#endif

/*  Creates a security descriptor that gives access to this process' user alone, also to files in a folder
    that has it. Free it with LocalFree; NULL if the system does not tell the user. */
static PSECURITY_DESCRIPTOR ignis__security_descriptor_create(void)
{
    union {
        TOKEN_USER user;
        char space[sizeof(TOKEN_USER) + 68]; /* SECURITY_MAX_SID_SIZE */
    } info;
    PSECURITY_DESCRIPTOR made = NULL;
    HANDLE token = NULL;
    char *name = NULL, text[256];
    DWORD size = 0;
    if (OpenProcessToken(GetCurrentProcess(), TOKEN_QUERY, &token) &&
        GetTokenInformation(token, TokenUser, &info, (DWORD)sizeof info, &size) &&
        ConvertSidToStringSidA(info.user.User.Sid, &name)) {
        snprintf(text, sizeof text, "D:P(A;OICI;GA;;;%s)", name);
        if (!ConvertStringSecurityDescriptorToSecurityDescriptorA(text, SDDL_REVISION_1, &made, NULL))
            made = NULL;
        LocalFree(name);
    }
    if (token)
        CloseHandle(token);
    return made;
}

/*  Returns that descriptor, created once. */
IGNIS__PRIVATE PSECURITY_DESCRIPTOR ignis__security_descriptor(void)
{
    static ignis__mutex lock = IGNIS__MUTEX_INIT;
    static PSECURITY_DESCRIPTOR descriptor;
    ignis__mutex_lock(&lock);
    if (!descriptor)
        descriptor = ignis__security_descriptor_create();
    ignis__mutex_unlock(&lock);
    return descriptor;
}

/*  Returns OBJECT_ATTRIBUTES with that descriptor; NULL if Windows cannot create one. */
IGNIS__PRIVATE void *ignis__vmm_security_attributes(void)
{
    static ignis__mutex lock = IGNIS__MUTEX_INIT;
    static struct {
        ULONG length;
        HANDLE root;
        void *name;
        ULONG attributes;
        PSECURITY_DESCRIPTOR descriptor;
        void *quality;
    } object;
    ignis__mutex_lock(&lock);
    object.length = (ULONG)sizeof object;
    object.descriptor = ignis__security_descriptor();
    ignis__mutex_unlock(&lock);
    return object.descriptor ? &object : NULL;
}

/*  POSIX descriptors are ints; on Windows an int holds a handle, of which 32 bits are significant. */
IGNIS__PRIVATE HANDLE ignis__fd_handle(int fd) { return (HANDLE)(intptr_t)fd; }
IGNIS__PRIVATE int ignis__fd_of(HANDLE handle) { return (int)(intptr_t)handle; }
IGNIS__PRIVATE int ignis__vmm_handle_fd(const ignis_vmm_handle *handle) { return ignis__fd_of((HANDLE)handle->win32); }
IGNIS__PRIVATE void ignis__vmm_handle_set_fd(ignis_vmm_handle *handle, int fd)
{
    handle->type = IGNIS_VMM_HANDLE_WIN32;
    handle->win32 = (void *)ignis__fd_handle(fd);
}

IGNIS__PRIVATE void ignis__vmm_handle_close(ignis_vmm_handle *handle)
{
    if (handle->type == IGNIS_VMM_HANDLE_WIN32 && handle->win32)
        CloseHandle((HANDLE)handle->win32);
}
IGNIS__PRIVATE bool ignis__vmm_handle_set_cloexec(ignis_vmm_handle *handle) { return handle->win32 != NULL; }

IGNIS__PRIVATE bool ignis__vmm_handle_duplicate(const char *call, const ignis_vmm_handle *handle, int64_t process_id,
                                                ignis_vmm_handle *out)
{
    HANDLE process = OpenProcess(PROCESS_DUP_HANDLE, FALSE, (DWORD)process_id), made = NULL;
    bool ok = process && DuplicateHandle(GetCurrentProcess(), (HANDLE)handle->win32, process, &made, 0, FALSE,
                                         DUPLICATE_SAME_ACCESS);
    if (!ok)
        ignis__fail(IGNIS_DIAG_CHANNEL_LOST, call,
                    "the handle cannot be duplicated into process %lld: Windows error %lu", (long long)process_id,
                    GetLastError());
    if (process)
        CloseHandle(process);
    out->win32 = (void *)made;
    return ok;
}

#else /* POSIX */

/*  >>vmm.system_posix - file descriptors as handles of memory

    Shares memory by file descriptors, which are closed on exec. The functions have the names of
    system_windows.c.
    Uses: POSIX.
    Locks: none. */

IGNIS__PRIVATE void *ignis__vmm_security_attributes(void) { return NULL; }
IGNIS__PRIVATE int ignis__vmm_handle_fd(const ignis_vmm_handle *handle) { return handle->fd; }
IGNIS__PRIVATE void ignis__vmm_handle_set_fd(ignis_vmm_handle *handle, int fd)
{
    handle->type = IGNIS_VMM_HANDLE_POSIX_FD;
    handle->fd = fd;
}

IGNIS__PRIVATE void ignis__vmm_handle_close(ignis_vmm_handle *handle)
{
    if (handle->type == IGNIS_VMM_HANDLE_POSIX_FD && handle->fd >= 0)
        close(handle->fd);
}
/*  Sets close-on-exec: a descriptor that a child inherits would keep the device memory. */
IGNIS__PRIVATE bool ignis__vmm_handle_set_cloexec(ignis_vmm_handle *handle)
{
    return fcntl(handle->fd, F_SETFD, FD_CLOEXEC) == 0;
}

IGNIS__PRIVATE bool ignis__vmm_handle_duplicate(const char *call, const ignis_vmm_handle *handle, int64_t process_id,
                                                ignis_vmm_handle *out)
{
    (void)handle, (void)process_id, (void)out;
    return ignis__fail_false(
        IGNIS_DIAG_UNSUPPORTED, call,
        "POSIX cannot duplicate a descriptor into another process; send it with ignis_channel_send");
}

#endif

/*  >>vmm.driver_call - driver calls: errors, device properties, sizes

    Reports failed driver calls with the step that failed, and reads what a device can do.
    Uses: ignis__global.cuda, the status of the thread.
    Locks: none. */

IGNIS__PRIVATE ignis__bytes_text ignis__bytes_write(int64_t bytes)
{
    static const char *const units[] = {"bytes", "KiB", "MiB", "GiB"};
    ignis__bytes_text out;
    int unit = 0;
    while (unit < 3 && bytes >= 1024 && bytes % 1024 == 0) {
        bytes /= 1024;
        unit++;
    }
    snprintf(out.text, sizeof out.text, "%lld %s", (long long)bytes, units[unit]);
    return out;
}

IGNIS__PRINTF(5, 6)
IGNIS__PRIVATE bool ignis__vmm_check_call(const char *call, ignis__device *device, const char *function, int error,
                                          const char *format, ...)
{
    char step[256];
    ignis__string_writer text;
    va_list args;
    if (error == 0)
        return true;
    ignis__string_begin(&text, step, sizeof step);
    ignis__string_add(&text, "%s, ", function);
    va_start(args, format);
    ignis__string_addv(&text, format, args);
    va_end(args);
    ignis__cuda_fail(call, device, step, error);
    return false;
}

IGNIS__PRIVATE int ignis__vmm_release_error(int error) { return ignis__devices_lost() ? 0 : error; }

IGNIS_API ignis_vmm_prop ignis_vmm_prop_of(int device, bool shareable)
{
    ignis_vmm_prop prop;
    memset(&prop, 0, sizeof prop);
    prop.type = IGNIS_VMM_ALLOCATION_PINNED;
    prop.handle_types = shareable ? IGNIS__VMM_HANDLE_SYSTEM : 0;
    prop.location.type = IGNIS_VMM_LOCATION_DEVICE;
    prop.location.id = device;
    return prop;
}

IGNIS_API ignis_vmm_access_desc ignis_vmm_access_of(int device, bool read_write)
{
    ignis_vmm_access_desc desc;
    desc.location.type = IGNIS_VMM_LOCATION_DEVICE;
    desc.location.id = device;
    desc.access = read_write ? IGNIS_VMM_ACCESS_READ_WRITE : IGNIS_VMM_ACCESS_READ;
    return desc;
}

IGNIS_API ignis_status ignis_vmm_check(int driver_error, const char *context)
{
    static const char call[] = "ignis_vmm_check";
    if (driver_error == 0)
        return IGNIS_OK;
    if (!ignis__collective_enter(call))
        return IGNIS_ERROR_NOT_SETUP;
    return ignis__cuda_fail(call, NULL, context ? context : "VMM operation", driver_error);
}

/*  Reads the facts of an entered device. False, and reported, if it cannot manage virtual memory. */
IGNIS__PRIVATE bool ignis__vmm_read_facts(const char *call, ignis__device *device, ignis__vmm_facts *facts)
{
    ignis_vmm_prop prop = ignis_vmm_prop_of(device->handle, false);
    int ordinal = ignis__device_ordinal(device);
    if (IGNIS__CUDA_FAILED(call, device, cuDeviceGetAttribute,
                           (&facts->vmm, IGNIS__CU_ATTRIBUTE_VMM, device->handle)) ||
        IGNIS__CUDA_FAILED(call, device, cuDeviceGetAttribute,
                           (&facts->shareable, IGNIS__CU_ATTRIBUTE_VMM_SYSTEM, device->handle)))
        return false;
    if (facts->vmm)
        return !IGNIS__VMM_FAILED(call, device, cuMemGetAllocationGranularity,
                                  (&facts->granularity, &prop, IGNIS__CU_GRANULARITY_MINIMUM), "device %d", ordinal) &&
               !IGNIS__VMM_FAILED(call, device, cuMemGetAllocationGranularity,
                                  (&facts->recommended, &prop, IGNIS__CU_GRANULARITY_RECOMMENDED), "device %d",
                                  ordinal);
    return ignis__fail_false(IGNIS_DIAG_UNSUPPORTED, call,
                             "device %d has no virtual memory management: it can neither map nor share memory",
                             ordinal);
}

/*  Returns the driver's number of a handle type; -1, and reported, if this system lacks the type. */
IGNIS__PRIVATE int ignis__vmm_handle_type(const char *call, ignis_vmm_handle_type type)
{
    if (type == IGNIS_VMM_HANDLE_NONE)
        return 0;
    if (type == IGNIS_VMM_HANDLE_DEFAULT || type == IGNIS__VMM_HANDLE_SYSTEM)
        return IGNIS__VMM_HANDLE_SYSTEM;
    if (type == IGNIS_VMM_HANDLE_POSIX_FD || type == IGNIS_VMM_HANDLE_WIN32 || type == IGNIS_VMM_HANDLE_WIN32_KMT)
        ignis__fail(IGNIS_DIAG_UNSUPPORTED, call, "handle type is %d; this system shares memory by " IGNIS__VMM_HANDLES,
                    (int)type);
    else
        ignis__fail(IGNIS_DIAG_BAD_ENUM, call, "handle type is %d; expected a value of ignis_vmm_handle_type",
                    (int)type);
    return -1;
}

IGNIS__PRIVATE bool ignis__vmm_round_size(const char *call, int64_t size, int64_t granularity, int64_t *rounded)
{
    if (size <= 0 || size > INT64_MAX - granularity)
        return ignis__fail_false(IGNIS_DIAG_BAD_NUMBER, call, "size is %lld; expected 1 to 2^63 - %lld",
                                 (long long)size, (long long)granularity);
    *rounded = (size + granularity - 1) / granularity * granularity;
    return true;
}

IGNIS__PRIVATE bool ignis__vmm_check_multiple(const char *call, const char *name, int64_t value, int64_t least,
                                              int64_t granularity)
{
    if (value >= least && value % granularity == 0)
        return true;
    return ignis__fail_false(IGNIS_DIAG_VMM_SIZE, call, "%s is %lld; expected a multiple of the granularity, %s", name,
                             (long long)value, ignis__bytes_write(granularity).text);
}

/*  >>vmm.physical_memory - physical memory: one handle of the driver, counted holds

    Creates, holds and releases handles of cuMemCreate.
    Uses: driver calls, the counters of the device's cache.
    Invariants: the last hold releases the handle; memory created here counts in ignis_memory_info.vmm_bytes
    until then.
    Locks: the cache's lock, around its counters. */

/*  Releases a hold; the last one releases the memory. */
IGNIS__PRIVATE void ignis__physical_drop(const char *call, ignis__physical *memory)
{
    ignis__binding binding;
    bool entered;
    if (!memory || ignis__atomic_add(&memory->holds, (uint64_t)-1) != 0)
        return;
    entered = ignis__device_enter_to_give(call, memory->device, &binding);
    (void)IGNIS__VMM_RELEASED(call, memory->device, cuMemRelease, (memory->handle), "releasing %s",
                              ignis__bytes_write(memory->size).text);
    if (entered)
        ignis__device_leave(&binding);
    if (memory->made) {
        ignis__cache *cache = &ignis__caches[ignis__device_ordinal(memory->device)];
        ignis__mutex_lock(&cache->lock);
        cache->info.vmm_bytes -= memory->size;
        ignis__mutex_unlock(&cache->lock);
    }
    ignis__free(memory);
}

/*  Wraps a handle of the driver, which it then owns. Without host memory the handle is released. */
IGNIS__PRIVATE ignis__physical *ignis__physical_wrap(const char *call, ignis__device *device, unsigned long long handle,
                                                     int64_t size, int handle_types)
{
    ignis__physical *memory = (ignis__physical *)ignis__alloc_for(call, sizeof *memory);
    if (!memory) {
        (void)IGNIS__CUDA(cuMemRelease, (handle));
        return NULL;
    }
    memory->holds = 1;
    memory->device = device;
    memory->handle = handle;
    memory->size = size;
    memory->handle_types = handle_types;
    return memory;
}

/*  Creates physical memory of whole granules. If the device is out of memory, the cache is trimmed before a
    second try. The device is entered. */
IGNIS__PRIVATE ignis__physical *ignis__physical_create(const char *call, ignis__device *device, int64_t size,
                                                       ignis_vmm_handle_type type)
{
    ignis__cache *cache = &ignis__caches[ignis__device_ordinal(device)];
    ignis_vmm_prop prop = ignis_vmm_prop_of(device->handle, false);
    unsigned long long handle = 0;
    ignis__physical *memory = NULL;
    ignis__vmm_facts facts;
    int error;
    prop.handle_types = ignis__vmm_handle_type(call, type);
    if (prop.handle_types < 0 || !ignis__vmm_read_facts(call, device, &facts) ||
        !ignis__vmm_round_size(call, size, (int64_t)facts.granularity, &size))
        return NULL;
    if (prop.handle_types && !facts.shareable) {
        ignis__fail(IGNIS_DIAG_UNSUPPORTED, call, "device %d cannot create memory that other processes can map",
                    ignis__device_ordinal(device));
        return NULL;
    }
    prop.win32_security = prop.handle_types ? ignis__vmm_security_attributes() : NULL;
    error = IGNIS__CUDA(cuMemCreate, (&handle, (size_t)size, &prop, 0));
    if (error == IGNIS__CU_OUT_OF_MEMORY && !ignis__capturing()) {
        ignis__cache_trim(call, device, cache);
        error = IGNIS__CUDA(cuMemCreate, (&handle, (size_t)size, &prop, 0));
    }
    if (!ignis__vmm_check_call(call, device, "cuMemCreate", error, "creating %s of physical memory on device %d",
                               ignis__bytes_write(size).text, ignis__device_ordinal(device)) ||
        (memory = ignis__physical_wrap(call, device, handle, size, prop.handle_types)) == NULL)
        return NULL;
    memory->made = true;
    ignis__mutex_lock(&cache->lock);
    cache->info.vmm_bytes += size;
    ignis__mutex_unlock(&cache->lock);
    return memory;
}

/*  Checks imported memory: the driver must call it pinned memory on a device of this process. */
IGNIS__PRIVATE bool ignis__physical_check_imported(const char *call, ignis__device *device, unsigned long long handle,
                                                   ignis_vmm_prop *prop)
{
    memset(prop, 0, sizeof *prop);
    if (IGNIS__VMM_FAILED(call, device, cuMemGetAllocationPropertiesFromHandle, (prop, handle),
                          "reading the properties of the memory"))
        return false;
    if (prop->type == IGNIS_VMM_ALLOCATION_PINNED && prop->location.type == IGNIS_VMM_LOCATION_DEVICE &&
        prop->location.id >= 0 && prop->location.id < ignis__device_total)
        return true;
    return ignis__fail_false(
        IGNIS_DIAG_NOT_SHAREABLE, call,
        "the memory has type %d, location type %d, location %d; expected pinned memory of a device", prop->type,
        prop->location.type, prop->location.id);
}

/*  Exports a handle of the system for another process; a descriptor is closed on exec. */
IGNIS__PRIVATE bool ignis__physical_export(const char *call, const ignis__physical *memory, ignis_vmm_handle *out)
{
    ignis__binding binding;
    bool ok;
    memset(out, 0, sizeof *out);
    if (!ignis__device_enter(call, memory->device, &binding))
        return false;
    out->type = IGNIS__VMM_HANDLE_SYSTEM;
    out->fd = -1;
    ok = !IGNIS__VMM_FAILED(call, memory->device, cuMemExportToShareableHandle,
                            (out->type == IGNIS_VMM_HANDLE_WIN32 ? (void *)&out->win32 : (void *)&out->fd,
                             memory->handle, (int)out->type, 0),
                            "exporting physical memory");
    if (ok && !ignis__vmm_handle_set_cloexec(out)) {
        ignis__fail(IGNIS_DIAG_CHANNEL_IO, call, "the driver's handle cannot be used");
        ignis__vmm_handle_close(out);
        ok = false;
    }
    if (!ok)
        memset(out, 0, sizeof *out);
    ignis__device_leave(&binding);
    return ok;
}

/*  >>vmm.block - a block: physical memory, mapped at an address of its own

    Creates, imports, maps and frees blocks, which arrays and transports are made of.
    Uses: physical memory, driver calls.
    Invariants: a block with an address has memory mapped there.
    Locks: none; one thread works on a block. */

/*  Opens a device before it gets access: the driver needs its context. */
IGNIS__PRIVATE bool ignis__vmm_open_device(const char *call, int ordinal)
{
    ignis__device *device = ignis__device_get(call, ordinal);
    ignis__binding binding;
    if (!device || !ignis__device_enter(call, device, &binding))
        return false;
    ignis__device_leave(&binding);
    return true;
}

/*  Unmaps a block and frees its addresses; a failure of the one does not stop the other. */
IGNIS__PRIVATE bool ignis__vmm_block_unmap(const char *call, ignis__vmm_block *block)
{
    ignis__bytes_text size = ignis__bytes_write(block->size);
    bool is_unmapped, is_freed;
    if (!block->address)
        return true;
    is_unmapped = IGNIS__VMM_RELEASED(call, block->device, cuMemUnmap, (block->address, (size_t)block->size),
                                      "unmapping %s at 0x%llx", size.text, block->address);
    is_freed = IGNIS__VMM_RELEASED(call, block->device, cuMemAddressFree, (block->address, (size_t)block->size),
                                   "freeing %s of addresses", size.text);
    block->address = 0;
    return is_unmapped && is_freed;
}

/*  Frees what a block has. After a fault the driver keeps it until the process ends. */
IGNIS__PRIVATE void ignis__vmm_block_destroy(const char *call, ignis__vmm_block *block)
{
    ignis__binding binding;
    bool entered = ignis__device_enter_to_give(call, block->device, &binding);
    ignis__vmm_block_unmap(call, block);
    ignis__physical_drop(call, block->memory);
    if (entered)
        ignis__device_leave(&binding);
    memset(block, 0, sizeof *block);
}

/*  Reserves addresses for a block, maps its memory, and gives devices access. A failure frees the block. The
    block's device is entered. */
static bool ignis__vmm_block_map(const char *call, ignis__vmm_block *block, const int *access_devices, int access_count)
{
    ignis_vmm_access_desc access[IGNIS_MAX_DEVICES + 1];
    ignis__device *device = block->device;
    ignis__address address = 0;
    size_t size = (size_t)block->size;
    int i, count = 1;
    bool ok = true, mapped = false;
    access[0] = ignis_vmm_access_of(device->handle, true);
    for (i = 0; ok && i < access_count; i++) {
        if (access_devices[i] == ignis__device_ordinal(device))
            continue;
        ok = count <= IGNIS_MAX_DEVICES ||
             ignis__fail_false(IGNIS_DIAG_BAD_NUMBER, call, "access_count is %d; expected at most %d devices",
                               access_count, ignis__device_total);
        ok = ok && ignis__vmm_open_device(call, access_devices[i]);
        if (ok)
            access[count++] = ignis_vmm_access_of(ignis__devices[access_devices[i]].handle, true);
    }
    ok = ok && !IGNIS__VMM_FAILED(call, device, cuMemAddressReserve, (&address, size, 0, 0, 0),
                                  "reserving %s of addresses", ignis__bytes_write(block->size).text);
    mapped = ok && !IGNIS__VMM_FAILED(call, device, cuMemMap, (address, size, 0, block->memory->handle, 0),
                                      "mapping %s at 0x%llx", ignis__bytes_write(block->size).text, address);
    ok = mapped && !IGNIS__VMM_FAILED(call, device, cuMemSetAccess, (address, size, access, (size_t)count),
                                      "giving %d device%s access to %s at 0x%llx", count, count == 1 ? "" : "s",
                                      ignis__bytes_write(block->size).text, address);
    if (ok) {
        block->address = address;
        return true;
    }
    if (mapped) /* only the first failure is reported */
        (void)IGNIS__CUDA(cuMemUnmap, (address, size));
    if (address)
        (void)IGNIS__CUDA(cuMemAddressFree, (address, size));
    ignis__vmm_block_destroy(call, block);
    return false;
}

/*  Creates a block on `device`, of whole granules; it and access_devices may read and write it. */
IGNIS__PRIVATE bool ignis__vmm_block_create(const char *call, ignis__device *device, int64_t size,
                                            const int *access_devices, int access_count, bool shareable,
                                            ignis__vmm_block *out)
{
    ignis__binding binding;
    bool ok;
    memset(out, 0, sizeof *out);
    if (!ignis__device_enter(call, device, &binding))
        return false;
    out->memory =
        ignis__physical_create(call, device, size, shareable ? IGNIS_VMM_HANDLE_DEFAULT : IGNIS_VMM_HANDLE_NONE);
    ok = out->memory != NULL;
    if (ok) {
        out->device = device;
        out->size = out->memory->size;
        ok = ignis__vmm_block_map(call, out, access_devices, access_count);
    }
    ignis__device_leave(&binding);
    return ok;
}

/*  Maps memory of another process, of exactly `size` bytes, for `device`. The caller keeps the handle, a
    descriptor or an NT handle; the driver takes either as a pointer. */
IGNIS__PRIVATE bool ignis__vmm_block_import(const char *call, ignis__device *device, const ignis_vmm_handle *handle,
                                            int64_t size, ignis__vmm_block *out)
{
    void *os = handle->type == IGNIS_VMM_HANDLE_WIN32 ? handle->win32 : (void *)(intptr_t)handle->fd;
    unsigned long long memory = 0;
    ignis__binding binding;
    ignis__vmm_facts facts;
    ignis_vmm_prop prop;
    bool ok;
    memset(out, 0, sizeof *out);
    if (!ignis__device_enter(call, device, &binding))
        return false;
    ok = ignis__vmm_read_facts(call, device, &facts) &&
         ignis__vmm_check_multiple(call, "size", size, 1, (int64_t)facts.granularity) &&
         !IGNIS__VMM_FAILED(call, device, cuMemImportFromShareableHandle, (&memory, os, (int)handle->type),
                            "importing handle %lld", (long long)(intptr_t)os);
    if (ok && !(ignis__physical_check_imported(call, device, memory, &prop) &&
                ignis__vmm_open_device(call, prop.location.id))) {
        (void)IGNIS__CUDA(cuMemRelease, (memory));
        ok = false;
    }
    if (ok) {
        out->device = device;
        out->size = size;
        out->memory = ignis__physical_wrap(call, &ignis__devices[prop.location.id], memory, size, prop.handle_types);
        ok = out->memory && ignis__vmm_block_map(call, out, NULL, 0);
    }
    ignis__device_leave(&binding);
    return ok;
}

/*  >>vmm - handles of physical memory

    Owns the pools of ignis_vmm and ignis_vmm_range, and implements the public functions of physical memory.
    Uses: physical memory, driver calls, the pool of handles.
    Invariants: the public handle and each mapping are holds of one slot; the last one frees the memory.
    Locks: slots of the pools. */

static ignis__pool ignis__vmms = IGNIS__POOL(ignis__vmm, IGNIS__KIND_VMM, "VMM", IGNIS_DIAG_VMM_FREED);

IGNIS__PRIVATE ignis__vmm *ignis__vmm_hold(const char *call, ignis_vmm handle)
{
    return (ignis__vmm *)ignis__handle_hold(call, &ignis__vmms, handle.id);
}

IGNIS__PRIVATE void ignis__vmm_drop(const char *call, ignis__vmm *vmm)
{
    if (!ignis__pool_drop(vmm))
        return;
    ignis__physical_drop(call, vmm->memory);
    ignis__pool_recycle(&ignis__vmms, vmm);
}

IGNIS__PRIVATE ignis_status ignis__vmm_end(const char *call, ignis__vmm *vmm, bool ok)
{
    ignis__vmm_drop(call, vmm);
    return ok ? IGNIS_OK : ignis__failed();
}

/* --- ranges of addresses --- */

IGNIS__PRIVATE ignis__pool ignis__ranges = IGNIS__POOL(ignis__range, IGNIS__KIND_RANGE, "range", IGNIS_DIAG_VMM_FREED);

IGNIS__PRIVATE ignis__range *ignis__range_hold(const char *call, ignis_vmm_range handle)
{
    return (ignis__range *)ignis__handle_hold(call, &ignis__ranges, handle.id);
}

/*  Unmaps a mapping that is no longer in a list. */
IGNIS__PRIVATE bool ignis__mapping_end(const char *call, ignis__range *range, ignis__mapping *mapping)
{
    ignis__address at = range->address + (uint64_t)mapping->offset;
    bool ok = IGNIS__VMM_RELEASED(call, range->device, cuMemUnmap, (at, (size_t)mapping->size),
                                  "unmapping %s at 0x%llx", ignis__bytes_write(mapping->size).text, at);
    ignis__atomic_add(&mapping->vmm->mappings, (uint64_t)-1);
    ignis__vmm_drop(call, mapping->vmm);
    ignis__free(mapping);
    return ok;
}

/*  Waits for the devices in a mask; not after a fault. */
IGNIS__PRIVATE bool ignis__devices_wait(const char *call, uint64_t mask)
{
    bool ok = true;
    for (; mask && !ignis__devices_lost(); mask &= mask - 1) {
        ignis__device *device = &ignis__devices[ignis__lowest_bit(mask)];
        ignis__binding binding;
        if (!ignis__device_enter(call, device, &binding)) {
            ok = false;
            continue;
        }
        ok = ignis__device_wait(call, device) && ok;
        ignis__device_leave(&binding);
    }
    return ok;
}

IGNIS__PRIVATE void ignis__range_drop(const char *call, ignis__range *range)
{
    ignis__binding binding;
    bool entered;
    if (!ignis__pool_drop(range))
        return;
    entered = ignis__device_enter_to_give(call, range->device, &binding);
    while (range->mappings) {
        ignis__mapping *mapping = range->mappings;
        range->mappings = mapping->next;
        ignis__devices_wait(call, mapping->devices);
        ignis__mapping_end(call, range, mapping);
    }
    (void)IGNIS__VMM_RELEASED(call, range->device, cuMemAddressFree, (range->address, (size_t)range->size),
                              "freeing %s of addresses", ignis__bytes_write(range->size).text);
    if (entered)
        ignis__device_leave(&binding);
    ignis__pool_recycle(&ignis__ranges, range);
}

/*  Reports leaks as for arrays. Memory that arrays still use is freed with the arrays. */
IGNIS__COLD IGNIS__PRIVATE void ignis__vmm_close(const char *call)
{
    ignis__range *range;
    ignis__vmm *vmm;
    uint64_t index = 0;
    while ((range = (ignis__range *)ignis__pool_next(&ignis__ranges, &index)) != NULL) {
        ignis__leak_report(call, IGNIS_DIAG_ARRAY_LEAKED, "a VMM range of %s", ignis__bytes_write(range->size).text);
        ignis__handle_kill(range);
        ignis__range_drop(call, range);
    }
    index = 0;
    while ((vmm = (ignis__vmm *)ignis__pool_next(&ignis__vmms, &index)) != NULL) {
        ignis__leak_report(call, IGNIS_DIAG_ARRAY_LEAKED, "%s of VMM memory on device %d",
                           ignis__bytes_write(vmm->memory->size).text, ignis__device_ordinal(vmm->memory->device));
        ignis__handle_kill(vmm);
        ignis__vmm_drop(call, vmm);
    }
}

/*  Creates a public handle for physical memory and takes its hold. Without host memory the hold is
    dropped. */
IGNIS__PRIVATE ignis_vmm ignis__vmm_publish(const char *call, ignis__physical *memory, size_t granularity,
                                            bool imported)
{
    ignis_vmm result = IGNIS__ZERO;
    ignis__vmm *vmm = (ignis__vmm *)ignis__pool_take(call, &ignis__vmms);
    if (!vmm) {
        ignis__physical_drop(call, memory);
        return result;
    }
    vmm->memory = memory;
    vmm->granularity = (int64_t)granularity;
    vmm->imported = imported;
    vmm->mappings = 0;
    ignis__section_use(IGNIS__SECTION_VMM, ignis__vmm_close);
    result.id = ignis__pool_publish(&ignis__vmms, vmm);
    return result;
}

/*  Enters the device of a description; NULL on failure. */
IGNIS__PRIVATE ignis__device *ignis__vmm_enter(const char *call, int ordinal, ignis__binding *binding)
{
    ignis__device *device;
    if (!ignis__collective_enter(call))
        return NULL;
    device = ignis__device_get(call, ordinal);
    return device && ignis__device_enter(call, device, binding) ? device : NULL;
}

IGNIS_API int64_t ignis_vmm_granularity(int ordinal, bool recommended)
{
    static const char call[] = "ignis_vmm_granularity";
    ignis__binding binding;
    ignis__device *device = ignis__vmm_enter(call, ordinal, &binding);
    ignis__vmm_facts facts;
    bool ok;
    if (!device)
        return -1;
    ok = ignis__vmm_read_facts(call, device, &facts);
    ignis__device_leave(&binding);
    return !ok ? -1 : (int64_t)(recommended ? facts.recommended : facts.granularity);
}

IGNIS_API ignis_vmm ignis_vmm_create(const ignis_vmm_desc *desc)
{
    static const char call[] = "ignis_vmm_create";
    ignis_vmm result = IGNIS__ZERO;
    ignis__physical *memory;
    ignis__binding binding;
    ignis__vmm_facts facts;
    ignis__device *device;
    if (!ignis__collective_enter(call) || !ignis__check_not_null(call, "desc", desc))
        return result;
    device = ignis__vmm_enter(call, ignis__desc_device(desc->device), &binding);
    if (!device)
        return result;
    if (ignis__vmm_read_facts(call, device, &facts) &&
        (memory = ignis__physical_create(call, device, desc->size, desc->handle_type)) != NULL)
        result = ignis__vmm_publish(call, memory, facts.granularity, false);
    ignis__device_leave(&binding);
    return result;
}

IGNIS_API ignis_status ignis_vmm_free(ignis_vmm handle)
{
    static const char call[] = "ignis_vmm_free";
    const uint64_t failures = ignis__failures();
    ignis__vmm *vmm;
    if (!handle.id)
        return IGNIS_OK;
    vmm = ignis__vmm_hold(call, handle);
    if (!vmm)
        return ignis__failed();
    return ignis__ended(
        failures, ignis__vmm_end(call, vmm,
                                 ignis__handle_kill(vmm) || ignis__fail_false(IGNIS_DIAG_VMM_FREED, call,
                                                                              "the VMM memory was freed")) == IGNIS_OK);
}

IGNIS_API ignis_status ignis_vmm_query(ignis_vmm handle, ignis_vmm_info *info)
{
    static const char call[] = "ignis_vmm_query";
    ignis__vmm *vmm = ignis__vmm_hold(call, handle);
    const ignis__physical *memory;
    ignis__binding binding;
    bool ok = false;
    if (!vmm)
        return ignis__failed();
    memory = vmm->memory;
    if (ignis__check_not_null(call, "info", info) && ignis__device_enter(call, memory->device, &binding)) {
        memset(info, 0, sizeof *info);
        info->size = memory->size;
        info->granularity = vmm->granularity;
        info->device = ignis__device_ordinal(memory->device);
        info->handle_type = memory->handle_types ? (ignis_vmm_handle_type)memory->handle_types : IGNIS_VMM_HANDLE_NONE;
        info->imported = vmm->imported;
        info->mappings = (int)ignis__atomic_load(&vmm->mappings);
        ok = ignis__physical_check_imported(call, memory->device, memory->handle, &info->prop);
        ignis__device_leave(&binding);
    }
    return ignis__vmm_end(call, vmm, ok);
}

/*  >>vmm.range - ranges: reserving addresses, mapping memory into them, access

    Implements the public functions of ignis_vmm_range. A call holds the range, locks its slot, and enters a
    device.
    Uses: physical memory, vmm.c.
    Invariants: mappings are sorted by offset and do not overlap; a mapping with arrays cannot be unmapped.
    Locks: the range's slot; it is given up while a device is waited for. */

IGNIS_API ignis_vmm_range ignis_vmm_reserve(int64_t size, int64_t alignment)
{
    static const char call[] = "ignis_vmm_reserve";
    ignis_vmm_range result = IGNIS__ZERO;
    ignis__address address = 0;
    ignis__binding binding;
    ignis__vmm_facts facts;
    ignis__range *range;
    ignis__device *device = ignis__device_current_enter(call, &binding);
    if (!device)
        return result;
    if (alignment < 0 || (alignment & (alignment - 1)) != 0) {
        ignis__fail(IGNIS_DIAG_BAD_NUMBER, call, "alignment is %lld; expected 0 or a power of two",
                    (long long)alignment);
    } else if (ignis__vmm_read_facts(call, device, &facts) &&
               ignis__vmm_round_size(call, size, (int64_t)facts.granularity, &size) &&
               !IGNIS__VMM_FAILED(call, device, cuMemAddressReserve, (&address, (size_t)size, (size_t)alignment, 0, 0),
                                  "reserving %s of addresses", ignis__bytes_write(size).text)) {
        range = (ignis__range *)ignis__pool_take(call, &ignis__ranges);
        if (range) {
            range->device = device;
            range->address = address;
            range->size = size;
            range->granularity = (int64_t)facts.granularity;
            range->mappings = NULL;
            range->arrays = 0;
            ignis__section_use(IGNIS__SECTION_VMM, ignis__vmm_close);
            result.id = ignis__pool_publish(&ignis__ranges, range);
        } else {
            (void)IGNIS__CUDA(cuMemAddressFree, (address, (size_t)size));
        }
    }
    ignis__device_leave(&binding);
    return result;
}

/*  Locks a held range. False, and reported, if another thread has freed it. */
static bool ignis__range_lock(const char *call, ignis__range *range)
{
    ignis__mutex_lock(&range->slot.lock);
    if (ignis__pool_live(range))
        return true;
    ignis__mutex_unlock(&range->slot.lock);
    return ignis__fail_false(IGNIS_DIAG_VMM_FREED, call, "the range was freed");
}

/*  Holds and locks a range and enters a device. NULL, with nothing held, on failure. */
IGNIS__PRIVATE ignis__range *ignis__range_begin(const char *call, ignis_vmm_range handle, int ordinal,
                                                ignis__range_use *use)
{
    ignis__range *range = use->range = ignis__range_hold(call, handle);
    if (!range)
        return NULL;
    use->device = ignis__vmm_enter(
        call, ordinal == IGNIS__RANGE_DEVICE ? ignis__device_ordinal(range->device) : ordinal, &use->binding);
    if (use->device && ignis__range_lock(call, range))
        return range;
    if (use->device)
        ignis__device_leave(&use->binding);
    ignis__range_drop(call, range);
    return NULL;
}

IGNIS__PRIVATE ignis_status ignis__range_end(const char *call, ignis__range_use *use, bool ok)
{
    ignis__mutex_unlock(&use->range->slot.lock);
    ignis__device_leave(&use->binding);
    ignis__range_drop(call, use->range);
    return ok ? IGNIS_OK : ignis__failed();
}

IGNIS_API ignis_status ignis_vmm_unreserve(ignis_vmm_range handle)
{
    static const char call[] = "ignis_vmm_unreserve";
    ignis__range *range;
    bool ok;
    if (!handle.id)
        return IGNIS_OK;
    range = ignis__range_hold(call, handle);
    if (!range)
        return ignis__failed();
    ok = ignis__range_lock(call, range);
    if (ok) {
        ok = !range->mappings ||
             ignis__fail_false(IGNIS_DIAG_VMM_STATE, call,
                               "memory is mapped in the range, the first at offset %lld; unmap it first",
                               (long long)range->mappings->offset);
        if (ok)
            ignis__pool_kill(range);
        ignis__mutex_unlock(&range->slot.lock);
    }
    if (ok)
        ignis__pool_drop(range); /* held by the handle */
    ignis__range_drop(call, range);
    return ok ? IGNIS_OK : ignis__failed();
}

IGNIS_API ignis_status ignis_vmm_range_query(ignis_vmm_range handle, ignis_vmm_range_info *info)
{
    static const char call[] = "ignis_vmm_range_query";
    const ignis__mapping *mapping;
    ignis__range_use use;
    ignis__range *range = ignis__range_begin(call, handle, IGNIS__RANGE_DEVICE, &use);
    if (!range)
        return ignis__failed();
    if (!ignis__check_not_null(call, "info", info))
        return ignis__range_end(call, &use, false);
    memset(info, 0, sizeof *info);
    info->ptr = (void *)(uintptr_t)range->address;
    info->size = range->size;
    info->arrays = range->arrays;
    for (mapping = range->mappings; mapping; mapping = mapping->next) {
        info->mapped_bytes += mapping->size;
        info->mappings++;
    }
    return ignis__range_end(call, &use, true);
}

/*  Finds where a new mapping is inserted in a locked range. NULL, and reported, if it does not fit. */
static ignis__mapping **ignis__mapping_place(const char *call, ignis__range *range, int64_t offset, int64_t size)
{
    ignis__mapping **at = &range->mappings;
    if (offset > range->size - size) {
        ignis__fail(IGNIS_DIAG_VMM_SIZE, call, "%s at offset %lld exceed the range of %s",
                    ignis__bytes_write(size).text, (long long)offset, ignis__bytes_write(range->size).text);
        return NULL;
    }
    while (*at && (*at)->offset + (*at)->size <= offset)
        at = &(*at)->next;
    if (!*at || (*at)->offset >= offset + size)
        return at;
    ignis__fail(IGNIS_DIAG_VMM_STATE, call, "%s are already mapped at offset %lld",
                ignis__bytes_write((*at)->size).text, (long long)(*at)->offset);
    return NULL;
}

IGNIS_API ignis_status ignis_vmm_map(ignis_vmm_range handle, int64_t offset, ignis_vmm memory)
{
    static const char call[] = "ignis_vmm_map";
    ignis__mapping *mapping = NULL, **at;
    ignis__range_use use;
    ignis__range *range = ignis__range_begin(call, handle, IGNIS__RANGE_DEVICE, &use);
    ignis__vmm *vmm = range ? ignis__vmm_hold(call, memory) : NULL;
    ignis_status status;
    int64_t size = vmm ? vmm->memory->size : 0;
    if (!range)
        return ignis__failed();
    if (vmm && ignis__vmm_check_multiple(call, "offset", offset, 0, vmm->granularity) &&
        (at = ignis__mapping_place(call, range, offset, size)) != NULL) {
        ignis__address address = range->address + (uint64_t)offset;
        mapping = (ignis__mapping *)ignis__alloc_for(call, sizeof *mapping);
        if (mapping &&
            IGNIS__VMM_FAILED(call, range->device, cuMemMap, (address, (size_t)size, 0, vmm->memory->handle, 0),
                              "mapping %s at 0x%llx", ignis__bytes_write(size).text, address)) {
            ignis__free(mapping);
            mapping = NULL;
        } else if (mapping) {
            mapping->offset = offset;
            mapping->size = size;
            mapping->vmm = vmm;
            mapping->next = *at;
            *at = mapping;
            ignis__atomic_add(&vmm->mappings, 1);
        }
    }
    status = ignis__range_end(call, &use, mapping != NULL);
    if (vmm && status != IGNIS_OK)
        ignis__vmm_drop(call, vmm);
    return status;
}

/*  Finds the mapping that begins at an offset of a locked range. NULL, and reported, if there is none or
    arrays use it. */
static ignis__mapping **ignis__mapping_find_unused(const char *call, ignis__range *range, int64_t offset)
{
    ignis__mapping **at = &range->mappings;
    while (*at && (*at)->offset != offset)
        at = &(*at)->next;
    if (*at && (*at)->arrays == 0)
        return at;
    if (*at)
        ignis__fail(IGNIS_DIAG_VMM_STATE, call, "%d array%s the mapping at offset %lld; free %s first", (*at)->arrays,
                    (*at)->arrays == 1 ? " uses" : "s use", (long long)offset, (*at)->arrays == 1 ? "it" : "them");
    else
        ignis__fail(IGNIS_DIAG_VMM_STATE, call, "no mapping begins at offset %lld of the range", (long long)offset);
    return NULL;
}

IGNIS_API ignis_status ignis_vmm_unmap(ignis_vmm_range handle, int64_t offset)
{
    static const char call[] = "ignis_vmm_unmap";
    const uint64_t failures = ignis__failures();
    ignis__range *range = ignis__range_hold(call, handle);
    ignis__mapping *mapping, **at;
    ignis__binding binding;
    uint64_t waited = 0, devices = 0;
    bool ok = false, lost = ignis__devices_lost();
    if (!range)
        return ignis__failed();
    if (!ignis__capture_refuses(call) && (lost || ignis__device_enter_to_give(call, range->device, &binding))) {
        bool again = true;
        while (again && ignis__range_lock(call, range)) {
            at = ignis__mapping_find_unused(call, range, offset);
            devices = at ? (*at)->devices & ~waited : 0;
            if (at && !devices) {
                mapping = *at;
                *at = mapping->next;
                ok = ignis__mapping_end(call, range, mapping);
            }
            ignis__mutex_unlock(&range->slot.lock); /* a device may be waiting for a thread that needs this lock */
            again = devices && ignis__devices_wait(call, devices);
            waited |= devices;
        }
        if (!lost)
            ignis__device_leave(&binding);
    }
    ignis__range_drop(call, range);
    return ignis__ended(failures, ok);
}

/*  Checks that a slice of a locked range is mapped throughout. Then adds devices and arrays to the mappings
    of the slice. */
IGNIS__PRIVATE bool ignis__range_check_mapped(const char *call, const ignis__range *range, int64_t offset, int64_t size,
                                              uint64_t devices, int arrays)
{
    ignis__mapping *mapping;
    int64_t at = offset;
    bool inside = offset >= 0 && size > 0 && size <= range->size && offset <= range->size - size;
    for (mapping = inside ? range->mappings : NULL; mapping && at < offset + size; mapping = mapping->next)
        if (mapping->offset <= at && mapping->offset + mapping->size > at)
            at = mapping->offset + mapping->size;
    if (!inside || at < offset + size)
        return ignis__fail_false(IGNIS_DIAG_VMM_STATE, call,
                                 "%lld bytes at offset %lld are not all mapped; the range has %lld bytes",
                                 (long long)size, (long long)offset, (long long)range->size);
    for (mapping = range->mappings; mapping; mapping = mapping->next)
        if (mapping->offset < offset + size && mapping->offset + mapping->size > offset) {
            mapping->devices |= devices;
            mapping->arrays += arrays;
        }
    return true;
}

IGNIS_API ignis_status ignis_vmm_set_access(ignis_vmm_range handle, int64_t offset, int64_t size, int ordinal,
                                            ignis_vmm_access access)
{
    static const char call[] = "ignis_vmm_set_access";
    ignis__range_use use;
    ignis__range *range = ignis__range_begin(call, handle, ordinal, &use);
    ignis_vmm_access_desc desc;
    ignis__address address;
    bool ok = false;
    if (!range)
        return ignis__failed();
    address = range->address + (uint64_t)offset;
    desc = ignis_vmm_access_of(use.device->handle, false);
    desc.access = (int)access;
    if (access != IGNIS_VMM_ACCESS_NONE && access != IGNIS_VMM_ACCESS_READ && access != IGNIS_VMM_ACCESS_READ_WRITE)
        ignis__fail(IGNIS_DIAG_BAD_ENUM, call,
                    "access is %d; expected IGNIS_VMM_ACCESS_NONE, _READ or _READ_WRITE (0, 1, 3)", (int)access);
    else
        ok = ignis__vmm_check_multiple(call, "offset", offset, 0, range->granularity) &&
             ignis__vmm_check_multiple(call, "size", size, 0, range->granularity) &&
             ignis__range_check_mapped(call, range, offset, size, access ? (uint64_t)1 << ordinal : 0, 0) &&
             !IGNIS__VMM_FAILED(call, use.device, cuMemSetAccess, (address, (size_t)size, &desc, 1),
                                "setting access %d of device %d to %s at 0x%llx", (int)access, ordinal,
                                ignis__bytes_write(size).text, address);
    return ignis__range_end(call, &use, ok);
}

IGNIS__PRIVATE bool ignis__vmm_read_access(const char *call, ignis__device *device, ignis__address address,
                                           unsigned long long *flags)
{
    ignis_vmm_location location = ignis_vmm_access_of(device->handle, false).location;
    *flags = 0;
    return !IGNIS__VMM_FAILED(call, device, cuMemGetAccess, (flags, &location, address),
                              "reading the access of device %d at 0x%llx", ignis__device_ordinal(device), address);
}

IGNIS_API ignis_status ignis_vmm_get_access(ignis_vmm_range handle, int64_t offset, int ordinal,
                                            ignis_vmm_access *access)
{
    static const char call[] = "ignis_vmm_get_access";
    ignis__range_use use;
    ignis__range *range = ignis__range_begin(call, handle, ordinal, &use);
    unsigned long long flags = 0;
    bool ok;
    if (!range)
        return ignis__failed();
    ok = ignis__check_not_null(call, "access", access) && ignis__range_check_mapped(call, range, offset, 1, 0, 0) &&
         ignis__vmm_read_access(call, use.device, range->address + (uint64_t)offset, &flags);
    if (ok)
        *access = (ignis_vmm_access)flags;
    return ignis__range_end(call, &use, ok);
}

/*  >>vmm.export_import - export and import of physical memory

    Turns physical memory into a handle of the system, and back in another process.
    Uses: physical memory, blocks.
    Invariants: an import trusts the driver, never the sender: kind, device and size are checked.
    Locks: none of its own. */

IGNIS_API ignis_status ignis_vmm_export(ignis_vmm handle, ignis_vmm_handle *out)
{
    static const char call[] = "ignis_vmm_export";
    ignis__vmm *vmm = ignis__vmm_hold(call, handle);
    bool ok;
    if (!vmm)
        return ignis__failed();
    ok = ignis__check_not_null(call, "handle", out) &&
         ((vmm->memory->handle_types & (int)IGNIS__VMM_HANDLE_SYSTEM) ||
          ignis__fail_false(IGNIS_DIAG_NOT_SHAREABLE, call,
                            "the memory was created with IGNIS_VMM_HANDLE_NONE; to share it, create it with "
                            "IGNIS_VMM_HANDLE_DEFAULT")) &&
         ignis__physical_export(call, vmm->memory, out);
    return ignis__vmm_end(call, vmm, ok);
}

static bool ignis__vmm_handle_check(const char *call, const ignis_vmm_handle *handle)
{
    if (handle->type != IGNIS__VMM_HANDLE_SYSTEM)
        return ignis__fail_false(IGNIS_DIAG_UNSUPPORTED, call,
                                 "handle.type is %d; this system shares memory by type %d", (int)handle->type,
                                 (int)IGNIS__VMM_HANDLE_SYSTEM);
    return (handle->type == IGNIS_VMM_HANDLE_WIN32 ? handle->win32 != NULL : handle->fd >= 0) ||
           ignis__fail_false(IGNIS_DIAG_BAD_NUMBER, call, "the handle is empty");
}

IGNIS_API ignis_vmm ignis_vmm_import(const ignis_vmm_handle *handle, int64_t size, int ordinal)
{
    static const char call[] = "ignis_vmm_import";
    ignis_vmm result = IGNIS__ZERO;
    ignis__binding binding;
    ignis__vmm_facts facts;
    ignis__vmm_block block;
    ignis__device *device = ignis__vmm_enter(call, ordinal, &binding);
    if (!device)
        return result;
    if (ignis__check_not_null(call, "handle", handle) && ignis__vmm_read_facts(call, device, &facts) &&
        ignis__vmm_handle_check(call, handle) && ignis__vmm_block_import(call, device, handle, size, &block)) {
        /* mapping has proven its size */
        if (block.memory->device != device)
            ignis__fail(IGNIS_DIAG_DEVICE_DIFFERS, call, "the memory is on device %d; expected device %d",
                        ignis__device_ordinal(block.memory->device), ordinal);
        else if (ignis__vmm_block_unmap(call, &block)) {
            result = ignis__vmm_publish(call, block.memory, facts.granularity, true);
            block.memory = NULL;
        }
        ignis__vmm_block_destroy(call, &block);
    }
    ignis__device_leave(&binding);
    return result;
}

IGNIS_API ignis_status ignis_vmm_handle_duplicate(const ignis_vmm_handle *handle, int64_t process_id,
                                                  ignis_vmm_handle *out)
{
    static const char call[] = "ignis_vmm_handle_duplicate";
    if (!ignis__collective_enter(call) || !ignis__check_not_null(call, "handle", handle) ||
        !ignis__check_not_null(call, "out", out))
        return ignis__failed();
    memset(out, 0, sizeof *out);
    if (!ignis__vmm_handle_check(call, handle) || !ignis__vmm_handle_duplicate(call, handle, process_id, out))
        return ignis__failed();
    out->type = handle->type;
    return IGNIS_OK;
}

IGNIS_API ignis_status ignis_vmm_handle_close(ignis_vmm_handle *handle)
{
    if (!handle)
        return IGNIS_OK;
    ignis__vmm_handle_close(handle);
    memset(handle, 0, sizeof *handle);
    return IGNIS_OK;
}

/*  >>vmm.array - arrays over VMM memory

    Creates arrays in blocks and over slices of ranges, and finds the physical memory of any array.
    Uses: arrays and storages of ignis.h, blocks, ranges.
    Invariants: an array over a slice keeps its range and the mappings of the slice until it is freed.
    Locks: the range's slot, around its mappings. */

/*  Creates an array over memory that may be on another device, which the driver's pointer query would reject.
    On failure the caller keeps what release_fn would release. */
IGNIS__PRIVATE ignis_array ignis__vmm_wrap(const char *call, ignis__device *device, ignis__address address,
                                           const ignis_array_desc *desc, void (*release_fn)(void *ptr, void *user_data),
                                           void *release_data)
{
    ignis_dtype dtype = desc->dtype ? desc->dtype : IGNIS_F32;
    ignis_array result = IGNIS__ZERO;
    ignis__storage *storage;
    ignis__array *array;
    int64_t numel;
    if (!ignis__shape_check(call, &desc->shape, dtype, &numel) ||
        (storage = ignis__storage_make(call, device, numel * ignis__dtypes[dtype].size)) == NULL)
        return result;
    storage->wrapped = true;
    storage->address = address;
    storage->stream = desc->stream;
    ignis__storage_enlist(storage, device, desc->stream);
    array = ignis__array_make(call, storage, &desc->shape, dtype, numel);
    if (!array) {
        ignis__storage_destroy(storage);
        return result;
    }
    storage->release_fn = release_fn;
    storage->release_data = release_data;
    array->owner = desc->owner ? desc->owner : IGNIS_OWNER_IGNIS;
    if (desc->tag)
        snprintf(array->tag, sizeof array->tag, "%s", desc->tag);
    return ignis__array_publish(array);
}

IGNIS__PRIVATE bool ignis__vmm_adopt_stream(const char *call, ignis__device *device, void *stream)
{
    return !stream || stream == device->stream || ignis__stream_adopt(call, device, stream) != 0;
}

/*  Checks a description before memory is allocated, and computes the bytes. */
IGNIS__PRIVATE bool ignis__vmm_array_check(const char *call, const ignis_array_desc *desc, int64_t *size)
{
    ignis_dtype dtype = desc->dtype ? desc->dtype : IGNIS_F32;
    int64_t numel;
    if (desc->ptr || desc->release_fn)
        return ignis__fail_false(IGNIS_DIAG_BAD_NUMBER, call,
                                 "desc.ptr and desc.release_fn must be null: this call chooses the address");
    if (!ignis__dtype_valid(call, dtype) || !ignis__owner_valid(call, desc->owner ? desc->owner : IGNIS_OWNER_IGNIS) ||
        !ignis__shape_check(call, &desc->shape, dtype, &numel))
        return false;
    *size = numel * ignis__dtypes[dtype].size;
    return true;
}

static void ignis__vmm_array_release(void *ptr, void *data)
{
    (void)ptr;
    ignis__vmm_block_destroy("ignis_array_free", (ignis__vmm_block *)data);
    ignis__free(data);
}

/*  Creates an array in a new block. */
static ignis_array ignis__vmm_array_create(const char *call, ignis__device *device, const ignis_array_desc *desc,
                                           int64_t size, const int *access_devices, int access_count, bool shareable)
{
    ignis_array result = IGNIS__ZERO;
    ignis__vmm_block *block = (ignis__vmm_block *)ignis__alloc_for(call, sizeof *block);
    if (block &&
        ignis__vmm_block_create(call, device, size ? size : 1, access_devices, access_count, shareable, block)) {
        result = ignis__vmm_wrap(call, device, block->address, desc, ignis__vmm_array_release, block);
        if (!result.id)
            ignis__vmm_block_destroy(call, block);
    }
    if (!result.id)
        ignis__free(block);
    return result;
}

/*  Creates a zeroed array of one dimension; other processes can map its memory if it is shareable. */
IGNIS__PRIVATE ignis_array ignis__array_zeroed(const char *call, ignis__device *device, ignis_dtype dtype,
                                               int64_t numel, const char *tag, bool shareable)
{
    ignis_array result;
    ignis_array_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.shape.ndim = 1;
    desc.shape.dim[0] = numel;
    desc.dtype = dtype;
    desc.device = ignis__device_in_desc(device);
    desc.tag = tag;
    result = shareable ? ignis__vmm_array_create(call, device, &desc, numel * ignis__dtypes[dtype].size, NULL, 0, true)
                       : ignis__array_create(call, &desc);
    if (result.id && ignis__array_set_zero(call, result) != IGNIS_OK)
        ignis__array_discard(call, &result);
    return result;
}

IGNIS_API ignis_array ignis_vmm_array(const ignis_vmm_array_desc *desc)
{
    static const char call[] = "ignis_vmm_array";
    ignis_array result = IGNIS__ZERO;
    ignis_array_desc plain;
    ignis__device *device;
    int64_t size;
    int type;
    if (!ignis__collective_enter(call) || !ignis__check_not_null(call, "desc", desc) ||
        (desc->access_count > 0 && !ignis__check_not_null(call, "desc.access_devices", desc->access_devices)))
        return result;
    memset(&plain, 0, sizeof plain);
    plain.shape = desc->shape;
    plain.dtype = desc->dtype;
    plain.owner = desc->owner;
    plain.tag = desc->tag;
    type = ignis__vmm_handle_type(call, desc->handle_type);
    device = type < 0 ? NULL : ignis__device_get(call, ignis__desc_device(desc->device));
    if (device && ignis__vmm_array_check(call, &plain, &size))
        result =
            ignis__vmm_array_create(call, device, &plain, size, desc->access_devices, desc->access_count, type != 0);
    return result;
}

/*  A slice of a range, under an array. */
typedef struct ignis__vmm_slice {
    ignis__range *range; /* held */
    int64_t offset, size;
} ignis__vmm_slice;

static void ignis__vmm_slice_release(void *ptr, void *data)
{
    ignis__vmm_slice *slice = (ignis__vmm_slice *)data;
    (void)ptr;
    ignis__mutex_lock(&slice->range->slot.lock);
    ignis__range_check_mapped("ignis_array_free", slice->range, slice->offset, slice->size, 0, -1);
    slice->range->arrays--;
    ignis__mutex_unlock(&slice->range->slot.lock);
    ignis__range_drop("ignis_array_free", slice->range);
    ignis__free(slice);
}

static bool ignis__vmm_slice_check(const char *call, const ignis__range *range, ignis__device *device,
                                   const ignis__vmm_slice *slice, int64_t element)
{
    unsigned long long flags = 0;
    int64_t at;
    if (slice->offset % element != 0)
        return ignis__fail_false(IGNIS_DIAG_VMM_SIZE, call, "offset is %lld, not a multiple of the element size %lld",
                                 (long long)slice->offset, (long long)element);
    if (!ignis__range_check_mapped(call, range, slice->offset, slice->size, 0, 0))
        return false;
    for (at = slice->offset / range->granularity * range->granularity; at < slice->offset + slice->size;
         at += range->granularity) {
        if (!ignis__vmm_read_access(call, device, range->address + (uint64_t)at, &flags))
            return false;
        if (flags == IGNIS_VMM_ACCESS_NONE)
            return ignis__fail_false(IGNIS_DIAG_VMM_STATE, call,
                                     "device %d has no access to the range at offset %lld; call ignis_vmm_set_access",
                                     ignis__device_ordinal(device), (long long)at);
    }
    return true;
}

IGNIS_API ignis_array ignis_vmm_array_map(ignis_vmm_range handle, int64_t offset, const ignis_array_desc *desc)
{
    static const char call[] = "ignis_vmm_array_map";
    ignis_array result = IGNIS__ZERO;
    ignis__vmm_slice *slice = NULL;
    ignis__range_use use;
    ignis__range *range =
        ignis__range_begin(call, handle, desc ? ignis__desc_device(desc->device) : IGNIS__RANGE_DEVICE, &use);
    int64_t size = 0;
    if (!range)
        return result;
    if (ignis__check_not_null(call, "desc", desc) && ignis__vmm_array_check(call, desc, &size) &&
        ignis__vmm_adopt_stream(call, use.device, desc->stream))
        slice = (ignis__vmm_slice *)ignis__alloc_for(call, sizeof *slice);
    if (slice) {
        slice->range = range;
        slice->offset = offset;
        slice->size = size ? size : 1;
        if (ignis__vmm_slice_check(call, range, use.device, slice,
                                   ignis__dtypes[desc->dtype ? desc->dtype : IGNIS_F32].size))
            result = ignis__vmm_wrap(call, use.device, range->address + (uint64_t)offset, desc,
                                     ignis__vmm_slice_release, slice);
    }
    if (result.id) {
        ignis__range_check_mapped(call, range, offset, slice->size, 0, 1);
        range->arrays++;
        ignis__atomic_add(&range->slot.state, 1); /* held by the array */
    } else {
        ignis__free(slice);
    }
    (void)ignis__range_end(call, &use, true);
    return result;
}

/*  Finds the driver's allocation that contains an array. Fails for memory that Ignis shares between arrays.
    The device is entered. */
IGNIS__PRIVATE bool ignis__vmm_find_allocation(const char *call, const ignis__array *array, const char *instead,
                                               ignis__address *base, int64_t *size)
{
    ignis__address address = ignis__atomic_load(&array->storage->address);
    size_t whole = 0;
    int error;
    if (array->storage->external)
        return ignis__fail_false(IGNIS_DIAG_NOT_SHAREABLE, call,
                                 "%s is in memory of a graphics API; export it with that API",
                                 ignis__array_label(array).text);
    if (!address || array->storage->block)
        return ignis__fail_false(IGNIS_DIAG_NOT_SHAREABLE, call,
                                 "%s shares its allocation with other arrays, so it cannot be exported alone; "
                                 "make it with %s",
                                 ignis__array_label(array).text, instead);
    error = IGNIS__CUDA(cuMemGetAddressRange_v2, (base, &whole, address + (uint64_t)array->offset));
    if (error != 0)
        ignis__fail_because(
            IGNIS_DIAG_NOT_SHAREABLE, call, error, ignis__cuda_name(error), NULL,
            "%s wraps a pointer outside every allocation of the driver: cuMemGetAddressRange returned %s (%d)",
            ignis__array_label(array).text, ignis__cuda_name(error), error);
    *size = (int64_t)whole;
    return error == 0;
}

/*  Holds the physical memory at a pointer of the caller; *base is its first address. */
static ignis__physical *ignis__physical_retain(const char *call, ignis__array *array, ignis__address at,
                                               ignis__address *base)
{
    unsigned long long handle = 0;
    ignis_vmm_prop prop;
    int64_t size;
    int error;
    if (!ignis__vmm_find_allocation(call, array, "ignis_vmm_array", base, &size))
        return NULL;
    error = IGNIS__CUDA(cuMemRetainAllocationHandle, (&handle, (void *)(uintptr_t)at));
    if (error != 0) {
        ignis__fail_because(IGNIS_DIAG_NOT_SHAREABLE, call, error, ignis__cuda_name(error), NULL,
                            "%s is not in memory of cuMemCreate, so it cannot be exported: cuMemRetainAllocationHandle "
                            "returned %s (%d); make it with ignis_vmm_array",
                            ignis__array_label(array).text, ignis__cuda_name(error), error);
        return NULL;
    }
    if (ignis__physical_check_imported(call, array->storage->device, handle, &prop))
        return ignis__physical_wrap(call, &ignis__devices[prop.location.id], handle, size, prop.handle_types);
    (void)IGNIS__CUDA(cuMemRelease, (handle));
    return NULL;
}

/*  Holds the physical memory of an array, and finds the array's offset in it. The device is entered. */
IGNIS__PRIVATE ignis__physical *ignis__vmm_find_physical(const char *call, ignis__array *array, int64_t *offset)
{
    ignis__storage *storage = array->storage;
    ignis__address at = ignis__atomic_load(&storage->address) + (uint64_t)array->offset, base = at;
    ignis__physical *memory = NULL;
    if (storage->release_fn == ignis__vmm_array_release) {
        base = ((const ignis__vmm_block *)storage->release_data)->address;
        memory = ((const ignis__vmm_block *)storage->release_data)->memory;
        ignis__atomic_add(&memory->holds, 1);
    } else if (storage->release_fn == ignis__vmm_slice_release) {
        ignis__range *range = ((ignis__vmm_slice *)storage->release_data)->range;
        const ignis__mapping *mapping;
        ignis__mutex_lock(&range->slot.lock);
        for (mapping = range->mappings; mapping && range->address + (uint64_t)mapping->offset <= at;
             mapping = mapping->next) {
            base = range->address + (uint64_t)mapping->offset;
            memory = mapping->vmm->memory;
        }
        ignis__atomic_add(&memory->holds, 1); /* the array keeps it mapped */
        ignis__mutex_unlock(&range->slot.lock);
    } else if ((memory = ignis__physical_retain(call, array, at, &base)) == NULL) {
        return NULL;
    }
    *offset = (int64_t)(at - base);
    if (*offset + ignis__array_bytes(array) <= memory->size)
        return memory;
    ignis__fail(IGNIS_DIAG_NOT_SHAREABLE, call, "%s covers several allocations; export each one alone",
                ignis__array_label(array).text);
    ignis__physical_drop(call, memory);
    return NULL;
}

IGNIS_API ignis_vmm ignis_vmm_of_array(ignis_array handle, int64_t *offset)
{
    static const char call[] = "ignis_vmm_of_array";
    ignis__array *array = ignis__array_hold(call, handle);
    ignis_vmm result = IGNIS__ZERO;
    ignis__physical *memory;
    ignis__binding binding;
    ignis__vmm_facts facts;
    int64_t at = 0;
    if (!array)
        return result;
    if (ignis__device_enter(call, array->storage->device, &binding)) {
        if (ignis__vmm_read_facts(call, array->storage->device, &facts) &&
            (memory = ignis__vmm_find_physical(call, array, &at)) != NULL)
            result = ignis__vmm_publish(call, memory, facts.granularity, false);
        if (result.id && offset)
            *offset = at;
        ignis__device_leave(&binding);
    }
    ignis__array_drop(call, array);
    return result;
}

/*  collective/peer - connections between processes that prove their identity. */

/*  An error that is not reported yet: the public function decides (a rejected client is not a failure). */
typedef struct ignis__peer_error {
    ignis_diagnostic diagnostic;
    bool expected; /* the caller did not want to wait, or the peer has said goodbye */
    char why[320];
} ignis__peer_error;

/*  How long to wait: until the deadline, or until *stop is set. With deadline 0, not at all. */
typedef struct ignis__deadline {
    int64_t deadline_ns; /* of ignis__monotonic_ns */
    const uint64_t *stop;
} ignis__deadline;

#define IGNIS__PATH_MAX 512

#ifdef _WIN32
#include <ntsecapi.h>
typedef HANDLE ignis__file;

#define IGNIS__NO_FILE INVALID_HANDLE_VALUE
#endif

#ifndef _WIN32
#include <poll.h>
#include <signal.h>
#ifdef __linux__
#include <sys/epoll.h>
#endif
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#ifndef __USE_GNU /* not declared by the C library under a strict standard */
#ifdef __cplusplus
extern "C" {
#endif
extern long syscall(long, ...);
extern int accept4(int, struct sockaddr *, socklen_t *, int);
extern int pipe2(int[2], int);
#ifdef __cplusplus
}
#endif
#endif
#endif

#ifndef _WIN32
#ifdef SO_PEERCRED
#define IGNIS__SO_PEERCRED SO_PEERCRED
#elif defined(__powerpc__)
#define IGNIS__SO_PEERCRED 21
#else
#define IGNIS__SO_PEERCRED 17
#endif

typedef int ignis__file;

#define IGNIS__NO_FILE (-1)

/*  Descriptors to close in forked children: a copy left open there would hide the death of this process. One
    bit each; untouched pages cost nothing. */
enum { IGNIS__FDS = 1 << 20 };

struct ignis__fds_type {
    ignis__mutex lock;
    bool watched;
    uint64_t kept[IGNIS__FDS / 64];
};

#define IGNIS__POLL_ENDED (POLLHUP | POLLERR | POLLNVAL)
#endif

typedef struct ignis__sha {
    uint32_t state[8];
    uint64_t size;
    unsigned char block[64];
} ignis__sha;

enum { IGNIS__SECRET = 32 }; /* bytes; a shorter secret is padded with zeros, which do not change an HMAC */

enum {
    IGNIS__MESSAGE_MAGIC = 0x52494749, /* "IGIR" */
    IGNIS__PROTOCOL_VERSION = 3,
    IGNIS__HANDSHAKE_BYTES = 1024, /* the longest message before authentication */
    IGNIS__NONCE = 16              /* random bytes that are never used twice */
};

/*  The header in front of every message. */
typedef struct ignis__message_header {
    uint32_t magic;
    uint16_t version;
    uint16_t type;
    uint32_t size; /* of the bytes after the header */
    uint32_t fd_count;
    uint64_t sequence; /* counts the messages of a direction */
} ignis__message_header;

/*  Types of messages. The first four authenticate both sides, in this order. */
enum {
    IGNIS__MESSAGE_HELLO = 1, /* the client's nonce */
    IGNIS__MESSAGE_CHALLENGE, /* the server's nonce and proof */
    IGNIS__MESSAGE_PROOF,     /* the client's proof and its claim, a description of itself */
    IGNIS__MESSAGE_WELCOME,
    IGNIS__MESSAGE_REFUSED, /* and the reason, which only authenticated peers receive */
    IGNIS__MESSAGE_GOODBYE, /* the channel was closed in order */
    IGNIS__MESSAGE_DATA,
    IGNIS__MESSAGE_ARRAY,
    IGNIS__MESSAGE_JOB /* the first of the job's types */
};

typedef struct ignis__connection {
    const struct ignis__connection_kind *kind;
    int64_t timeout_ns;
    uint64_t closing; /* whoever waits gives up */
    uint64_t lost;    /* 1: failed for good; 2: closed by the peer */
    ignis__mutex send_lock, receive_lock;
    char path[IGNIS__PATH_MAX]; /* where clients connect */
    ignis__file in, out;        /* the same file for a socket and a Windows pipe */
    bool owns_path;             /* this side created the file at the path and removes it */
    bool is_authenticated;      /* the peer knows the secret */
    /* Windows: the peer's process, into which handles are duplicated; none if the system does not open it. */
    ignis__file process;
    int attempt; /* of connecting, from 0; with several addresses each attempt takes the next */
    int64_t peer_pid, peer_uid;
    uint64_t sent, received; /* messages */
    unsigned char nonces[2][IGNIS__NONCE];

    size_t capacity;      /* of a message, without its header */
    unsigned char *inbox; /* the message that is arriving: header and bytes */
    size_t inbox_size;
    bool inbox_is_complete;
    int inbox_fds[IGNIS_CHANNEL_MAX_FDS];
    int inbox_fd_count;
    /* The message that is leaving. Bytes that a stream has not taken yet go before the next message. */
    unsigned char *outbox;
    size_t outbox_size, outbox_done;
    uint64_t unsent; /* bytes of the outbox are left */
    const int *outbox_fds;
    int outbox_fd_count;

    int side;        /* index of this side in shared memory */
    bool peer_seen;  /* shared memory: the reader has seen the peer */
    int pause_us[2]; /* of the reader, of the writer */
    ignis__file shared_file;
    struct ignis__shared *shared;
    size_t shared_bytes;
} ignis__connection;

struct ignis__listener;

/*  A kind of connection. Functions return false with the error set, unless noted. */
typedef struct ignis__connection_kind {
    ignis_channel_method method;
    const char *suffix; /* of the path */
    /* messages keep their boundaries, carry descriptors, and come from a user that the system names */
    bool packets;
    bool descriptors; /* messages carry descriptors, and the system names the peer's process */
    /* NULL: nothing to do before accept */
    bool (*listen)(ignis__peer_error *error, struct ignis__listener *listener);
    /* false without a diagnostic: no client has come */
    bool (*accept)(ignis__peer_error *error, struct ignis__listener *listener, ignis__connection *fresh);
    bool (*connected)(ignis__connection *fresh); /* a client is connected; NULL: always */
    bool (*connect)(ignis__peer_error *error, ignis__connection *connection, bool *again);
    /* sends from the outbox: bytes; 0: not now; -1: error */
    int64_t (*write)(ignis__peer_error *error, ignis__connection *connection);
    /* bytes; 0: not yet; -1: error */
    int64_t (*read)(ignis__peer_error *error, ignis__connection *connection, void *data, size_t size);
    bool (*wait)(ignis__peer_error *error, ignis__connection *connection, bool to_write, const ignis__deadline *until,
                 const char *what);
    bool (*alive)(ignis__connection *connection);
    /* tells the peer, while other threads may be inside; NULL: closing tells it */
    void (*shutdown)(ignis__connection *connection);
    void (*remove)(ignis__connection *connection); /* removes the file at the path; NULL: there is no file */
    /* For descriptors that travel as numbers after a message: duplicates them into the peer, or closes those
       duplicates. NULL: not needed. */
    bool (*duplicate)(ignis__peer_error *error, const ignis__connection *connection, const int *fds, int count,
                      uint64_t *numbers);
    void (*close_duplicates)(const ignis__connection *connection, const uint64_t *numbers, int count);
} ignis__connection_kind;

/*  Content of the file of a name. The server keeps the file locked, so the system tells when it has died. */
typedef struct ignis__name_record {
    uint64_t version, pid;
    uint64_t has_secret; /* 0: the caller passed a secret, which is not written to files */
    unsigned char secret[IGNIS__SECRET];
    uint64_t place; /* of the server's pipe (Windows) */
} ignis__name_record;

/*  Places for clients that have not authenticated yet; more clients wait in the system's queue. */
enum { IGNIS__LISTENER_PENDING = 64 };

typedef struct ignis__listener {
    const ignis__connection_kind *kind;
    int64_t timeout_ns;
    uint64_t closing;
    ignis__mutex lock; /* held by the thread that accepts */
    char path[IGNIS__PATH_MAX], name_path[IGNIS__PATH_MAX];
    /* poll: one descriptor that becomes readable when a client or a message comes */
    ignis__file file, name_file, poll;
    bool owns_path; /* this process created the file at the path and removes it */
    unsigned char secret[IGNIS__SECRET];
    uint64_t place; /* random, also in the file of the name */
    uint64_t refused, arrivals;
    struct {
        ignis__connection *connection;
        int64_t since_ns;               /* 0: no client is connected yet */
    } pending[IGNIS__LISTENER_PENDING]; /* oldest first */
    int pending_count;
} ignis__listener;

/*  Where and how a client connects. */
typedef struct ignis__client {
    const ignis__connection_kind *kind;
    const char *path, *name_path;
    const unsigned char *secret; /* NULL: the one in the file at name_path */
    const void *claim;           /* what the client says of itself */
    size_t claim_size;
    size_t capacity; /* bytes of a message after the handshake */
} ignis__client;


/*  >>peer - other processes: connections, authentication, messages

    Errors below public functions, deadlines, and comparisons in constant time. Channels and jobs are built on this
    room. It uses the system and the floors of ignis.h below collective, never a channel or a device.
    Invariants: no function waits beyond its deadline; closing an object wakes whoever waits in it.
    Locks: none in this part. */

/*  Sets the error. Always returns false. */
IGNIS__PRINTF(3, 4)
IGNIS__COLD IGNIS__PRIVATE bool ignis__peer_error_set(ignis__peer_error *error, ignis_diagnostic diagnostic,
                                                      const char *format, ...)
{
    va_list args;
    error->diagnostic = diagnostic;
    error->expected = false;
    va_start(args, format);
    vsnprintf(error->why, sizeof error->why, format, args);
    va_end(args);
    return false;
}

/*  Reports an error. An expected one is not logged, and a call that did not want to wait leaves no failure
    either. */
IGNIS__COLD IGNIS__PRIVATE ignis_status ignis__peer_error_report(const char *call, const ignis__peer_error *error)
{
    ignis__record before = ignis__this_thread.record;
    bool quiet = ignis__this_thread.quiet,
         forgotten = error->expected && error->diagnostic == IGNIS_DIAG_CHANNEL_TIMEOUT;
    ignis_status status;
    if (forgotten)
        memset(&ignis__this_thread.record, 0, sizeof before);
    ignis__this_thread.quiet = quiet || error->expected;
    status = ignis__fail(error->diagnostic, call, "%s", error->why);
    ignis__this_thread.quiet = quiet;
    if (forgotten) {
        ignis__record_drop(&ignis__this_thread);
        ignis__this_thread.record = before;
    }
    return status;
}

IGNIS__PRIVATE const ignis__deadline ignis__deadline_now = {0, NULL};

IGNIS__PRIVATE ignis__deadline ignis__deadline_at(int64_t deadline_ns)
{
    ignis__deadline until = {0, NULL};
    until.deadline_ns = deadline_ns;
    return until;
}

IGNIS__PRIVATE ignis__deadline ignis__deadline_in(int64_t ns) { return ignis__deadline_at(ignis__monotonic_ns() + ns); }

static bool ignis__deadline_is_stopped(const ignis__deadline *until)
{
    return until->stop && ignis__atomic_load(until->stop);
}

/*  Returns the milliseconds to wait before the next try; 0 if the deadline has passed. */
IGNIS__PRIVATE int ignis__deadline_slice_ms(const ignis__deadline *until, int most_ms)
{
    int64_t left_ns = until->deadline_ns ? until->deadline_ns - ignis__monotonic_ns() : 0;
    if (left_ns <= 0 || ignis__deadline_is_stopped(until))
        return 0;
    return left_ns / 1000000 >= most_ms ? most_ms : (int)(left_ns / 1000000) + 1;
}

IGNIS__COLD IGNIS__PRIVATE bool ignis__peer_error_set_timeout(ignis__peer_error *error, const ignis__deadline *until,
                                                              const char *what)
{
    if (ignis__deadline_is_stopped(until))
        return ignis__peer_error_set(error, IGNIS_DIAG_CHANNEL_FREED, "the channel was closed during the call");
    ignis__peer_error_set(error, IGNIS_DIAG_CHANNEL_TIMEOUT, until->deadline_ns ? "%s before the deadline" : "%s yet",
                          what);
    error->expected = until->deadline_ns == 0;
    return false;
}

IGNIS__COLD IGNIS__PRIVATE bool ignis__peer_error_set_lost(ignis__peer_error *error)
{
    return ignis__peer_error_set(error, IGNIS_DIAG_CHANNEL_LOST, "the peer has closed the connection or died");
}

IGNIS__COLD IGNIS__PRIVATE bool ignis__peer_error_set_memory(ignis__peer_error *error, size_t size)
{
    return ignis__peer_error_set(error, IGNIS_DIAG_HOST_MEMORY, "out of host memory: %lld bytes requested",
                                 (long long)size);
}

/*  Compares in a time that does not depend on the content. */
IGNIS__PRIVATE bool ignis__bytes_equal(const unsigned char *a, const unsigned char *b, size_t size)
{
    unsigned char difference = 0;
    while (size--)
        difference = (unsigned char)(difference | (*a++ ^ *b++));
    return difference == 0;
}

#ifdef _WIN32

/*  >>peer.system_windows - Windows: handles, waits, the private folder

    The functions of the system for connections; system_posix.c has the same names.
    Uses: Windows.
    Invariants: an int descriptor is a handle (vmm.system_windows).
    Locks: none. */

IGNIS__PRIVATE void ignis__peer_file_close(ignis__file *file)
{
    if (*file != IGNIS__NO_FILE)
        CloseHandle(*file);
    *file = IGNIS__NO_FILE;
}
IGNIS__PRIVATE void ignis__fd_close(int *fd)
{
    if (*fd > 0)
        CloseHandle(ignis__fd_handle(*fd));
    *fd = -1;
}
IGNIS__PRIVATE void ignis__fds_close(const int *fds, int count)
{
    while (count > 0)
        CloseHandle(ignis__fd_handle(fds[--count]));
}
IGNIS__PRIVATE bool ignis__fd_is_open(int fd)
{
    DWORD flags;
    return fd > 0 && GetHandleInformation(ignis__fd_handle(fd), &flags);
}

/*  Sets errno from the last call's error, as POSIX does. */
IGNIS__PRIVATE bool ignis__errno_set(void)
{
    DWORD error = GetLastError();
    errno = error == ERROR_NOT_ENOUGH_MEMORY || error == ERROR_COMMITMENT_LIMIT ? ENOMEM
            : error == ERROR_ACCESS_DENIED                                      ? EACCES
            : error == ERROR_INVALID_HANDLE                                     ? EBADF
                                                                                : EIO;
    return false;
}

/*  A condition variable with deadlines. */
IGNIS__PRIVATE bool ignis__condition_make(ignis__condition *condition)
{
    return InitializeConditionVariable(condition), true;
}
IGNIS__PRIVATE void ignis__condition_end(ignis__condition *condition) { (void)condition; }

/*  As ignis__condition_wait, with a deadline; may return early. False if the deadline has passed. */
IGNIS__PRIVATE bool ignis__condition_wait_until(ignis__condition *condition, ignis__mutex *mutex, int64_t deadline_ns)
{
    const ignis__deadline until = ignis__deadline_at(deadline_ns);
    int ms = ignis__deadline_slice_ms(&until, 1000);
    if (ms > 0)
        SleepConditionVariableSRW(condition, mutex, (DWORD)ms, 0);
    return ms > 0;
}

IGNIS__PRIVATE void ignis__sleep_us(int us) { Sleep((DWORD)((us + 999) / 1000)); }

IGNIS__PRIVATE bool ignis__random_bytes(void *out, size_t size) { return RtlGenRandom(out, (ULONG)size) != 0; }

/*  Creates the private folder. path: the wanted folder, or "" for the default; on return its path. A new
    folder is open to its user alone, as those in a user's profile are. */
IGNIS__COLD IGNIS__PRIVATE bool ignis__private_folder(const char *call, char *path, size_t size)
{
    const char *home = ignis__env("IGNIS_COMM_DIR");
    WCHAR wide[IGNIS__WIDE];
    SECURITY_ATTRIBUTES security;
    int length = (int)strlen(path);
    security.nLength = (DWORD)sizeof security;
    security.bInheritHandle = FALSE;
    security.lpSecurityDescriptor = ignis__security_descriptor();
    if (length == 0) {
        bool given = home && *home;
        if (!given)
            home = ignis__env("LOCALAPPDATA");
        length = snprintf(path, size, "%s%s", home ? home : ".", given ? "" : "\\ignis");
    }
    if (length < 0 || (size_t)length >= size ||
        (!CreateDirectoryW(ignis__utf16(path, wide), &security) && GetLastError() != ERROR_ALREADY_EXISTS))
        return ignis__fail_false(IGNIS_DIAG_CHANNEL_IO, call,
                                 "cannot create the folder %s, or its path exceeds %d bytes", path, (int)size - 1);
    return true;
}

#else /* POSIX */

/*  >>peer.system_posix - POSIX: descriptors, waits, the private folder, shared memory

    The functions of the system for connections; system_windows.c has the same names.
    Uses: POSIX, memfd and epoll where they exist.
    Invariants: every descriptor of Ignis is closed on exec and in forked children.
    Locks: ignis__fds.lock around the table of descriptors. */

#ifdef SYS_memfd_create
#define IGNIS__MEMFD_CREATE SYS_memfd_create /* glibc has the function from 2.27 on */
#else
#define IGNIS__MEMFD_CREATE (-1) /* a system without it returns ENOSYS */
#endif

IGNIS__PRIVATE struct ignis__fds_type ignis__fds = {IGNIS__MUTEX_INIT, false, {0}};

static void ignis__fds_before_fork(void) { ignis__mutex_lock(&ignis__fds.lock); }
static void ignis__fds_after_fork(void) { ignis__mutex_unlock(&ignis__fds.lock); }
static void ignis__fds_in_child(void)
{
    int i;
    for (i = 0; i < IGNIS__FDS / 64; i++)
        for (; ignis__fds.kept[i]; ignis__fds.kept[i] &= ignis__fds.kept[i] - 1)
            close(64 * i + ignis__lowest_bit(ignis__fds.kept[i]));
    ignis__mutex_unlock(&ignis__fds.lock);
}

/*  Registers a new descriptor: ignis__fd_close or a forked child closes it. */
IGNIS__PRIVATE int ignis__fd_register(int fd)
{
    if (fd < 0 || fd >= IGNIS__FDS)
        return fd;
    ignis__mutex_lock(&ignis__fds.lock);
    if (!ignis__fds.watched)
        ignis__fds.watched = pthread_atfork(ignis__fds_before_fork, ignis__fds_after_fork, ignis__fds_in_child) == 0;
    ignis__fds.kept[fd / 64] |= (uint64_t)1 << fd % 64;
    ignis__mutex_unlock(&ignis__fds.lock);
    return fd;
}

/*  Closes a descriptor, if it is open; errno is kept. */
IGNIS__PRIVATE void ignis__fd_close(int *fd)
{
    int os_error = errno;
    if (*fd >= 0) {
        ignis__mutex_lock(&ignis__fds.lock);
        if (*fd < IGNIS__FDS)
            ignis__fds.kept[*fd / 64] &= ~((uint64_t)1 << *fd % 64);
        close(*fd);
        ignis__mutex_unlock(&ignis__fds.lock);
    }
    *fd = -1;
    errno = os_error;
}
IGNIS__PRIVATE void ignis__peer_file_close(ignis__file *file) { ignis__fd_close(file); }

IGNIS__PRIVATE void ignis__fds_close(const int *fds, int count)
{
    while (count > 0)
        close(fds[--count]);
}

IGNIS__PRIVATE bool ignis__fd_is_open(int fd) { return fcntl(fd, F_GETFD) >= 0; }

/*  A condition variable with deadlines. */
IGNIS__PRIVATE bool ignis__condition_make(ignis__condition *condition)
{
    pthread_condattr_t attributes;
    bool ok = pthread_condattr_init(&attributes) == 0;
    if (ok) {
        ok = pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC) == 0 &&
             pthread_cond_init(condition, &attributes) == 0;
        pthread_condattr_destroy(&attributes);
    }
    return ok;
}
IGNIS__PRIVATE void ignis__condition_end(ignis__condition *condition) { pthread_cond_destroy(condition); }

/*  As ignis__condition_wait, with a deadline; may return early. False if the deadline has passed. */
IGNIS__PRIVATE bool ignis__condition_wait_until(ignis__condition *condition, ignis__mutex *mutex, int64_t deadline_ns)
{
    struct timespec until;
    until.tv_sec = (time_t)(deadline_ns / 1000000000);
    until.tv_nsec = (long)(deadline_ns % 1000000000);
    return pthread_cond_timedwait(condition, mutex, &until) != ETIMEDOUT;
}

IGNIS__PRIVATE void ignis__sleep_us(int us)
{
    struct timespec time;
    time.tv_sec = us / 1000000;
    time.tv_nsec = us % 1000000 * 1000L;
    (void)nanosleep(&time, NULL);
}

IGNIS__PRIVATE bool ignis__random_bytes(void *out, size_t size)
{
    int file = open("/dev/urandom", O_RDONLY | O_CLOEXEC);
    char *at = (char *)out;
    ssize_t got = 0;
    if (file < 0)
        return false;
    while (size > 0 && ((got = read(file, at, size)) > 0 || (got < 0 && errno == EINTR)))
        if (got > 0) {
            at += got;
            size -= (size_t)got;
        }
    close(file);
    return size == 0;
}

/*  Tells if a file belongs to this user and is closed to others. */
IGNIS__PRIVATE bool ignis__stat_is_ours(const struct stat *info)
{
    return info->st_uid == geteuid() && (info->st_mode & 077) == 0;
}

/*  Creates the private folder and checks it. path: the wanted folder, or "" for the default; on return its
    path. */
IGNIS__COLD IGNIS__PRIVATE bool ignis__private_folder(const char *call, char *path, size_t size)
{
    const char *home = ignis__env("IGNIS_COMM_DIR");
    struct stat info;
    int length = (int)strlen(path);
    if (length == 0 && home && *home) {
        length = snprintf(path, size, "%s", home);
    } else if (length == 0) {
        home = ignis__env("XDG_RUNTIME_DIR");
        if (home && *home == '/' && lstat(home, &info) == 0 && S_ISDIR(info.st_mode) && ignis__stat_is_ours(&info)) {
            length = snprintf(path, size, "%s/ignis", home);
        } else {
            home = ignis__env("TMPDIR");
            length = snprintf(path, size, "%s/ignis-%lu", home && *home ? home : "/tmp", (unsigned long)geteuid());
        }
    }
    if (length < 0 || (size_t)length >= size)
        return ignis__fail_false(IGNIS_DIAG_CHANNEL_IO, call,
                                 "the path of the private folder is longer than %d bytes: %.100s...", (int)size - 1,
                                 path);
    if ((mkdir(path, 0700) != 0 && errno != EEXIST) || lstat(path, &info) != 0)
        return ignis__fail_false(IGNIS_DIAG_CHANNEL_IO, call, "cannot create the private folder %s: %s", path,
                                 strerror(errno));
    if (!S_ISDIR(info.st_mode))
        return ignis__fail_false(IGNIS_DIAG_CHANNEL_IO, call, "%s is not a folder (symbolic links are refused)", path);
    if (info.st_uid != geteuid())
        return ignis__fail_false(IGNIS_DIAG_CHANNEL_IO, call,
                                 "the folder %s belongs to user %lu, this process to user %lu", path,
                                 (unsigned long)info.st_uid, (unsigned long)geteuid());
    return (info.st_mode & 0777) == 0700 ||
           ignis__fail_false(IGNIS_DIAG_CHANNEL_IO, call, "the folder %s has mode 0%o; expected 0700 (chmod 700)", path,
                             (unsigned)info.st_mode & 0777);
}

/*  Host memory that processes share: a file without a name. Seals prevent that it shrinks, since access
    beyond its end would kill the process. */
enum {
    IGNIS__MEMFD_FLAGS = 1 | 2, /* MFD_CLOEXEC | MFD_ALLOW_SEALING */
    IGNIS__ADD_SEALS = 1033,    /* F_ADD_SEALS, F_GET_SEALS */
    IGNIS__GET_SEALS = 1034,
    IGNIS__SEALS = 1 | 2 | 4 /* F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW */
};

/*  Creates zeroed shared memory of `size` bytes; returns its descriptor, -1 with errno on failure. */
IGNIS__PRIVATE int ignis__shared_make(size_t size)
{
    int fd = (int)syscall(IGNIS__MEMFD_CREATE, "ignis", (unsigned)IGNIS__MEMFD_FLAGS), os_error;
    if (fd < 0)
        return -1;
    if (fchmod(fd, 0600) == 0 && ftruncate(fd, (off_t)size) == 0 && fcntl(fd, IGNIS__ADD_SEALS, IGNIS__SEALS) == 0)
        return fd;
    os_error = errno;
    close(fd);
    errno = os_error;
    return -1;
}

/*  Maps shared memory of exactly `size` bytes that cannot shrink. */
IGNIS__PRIVATE void *ignis__shared_map(int fd, size_t size)
{
    struct stat info;
    void *data;
    int seals = fcntl(fd, IGNIS__GET_SEALS);
    if (seals < 0 || (seals & IGNIS__SEALS) != IGNIS__SEALS || fstat(fd, &info) != 0 || (size_t)info.st_size != size) {
        errno = EINVAL;
        return NULL;
    }
    data = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    return data == MAP_FAILED ? NULL : data;
}

IGNIS__PRIVATE void ignis__shared_unmap(void *data, size_t size) { munmap(data, size); }

/*  Returns the events of a descriptor that came within `ms`, hang-ups among them; -1 with errno on
    failure. */
IGNIS__PRIVATE int ignis__fd_poll(int fd, short events, int ms)
{
    struct pollfd wanted;
    int ready;
    wanted.fd = fd;
    wanted.events = events;
    wanted.revents = 0;
    ready = poll(&wanted, 1, ms);
    return ready < 0 ? -1 : wanted.revents;
}

/*  Waits for events of a descriptor; a hang-up is one. */
IGNIS__PRIVATE bool ignis__fd_wait(ignis__peer_error *error, int fd, short events, const ignis__deadline *until,
                                   const char *what)
{
    int slice;
    do {
        int ready;
        slice = ignis__deadline_slice_ms(until, 50);
        ready = ignis__fd_poll(fd, events, slice);
        if (ready > 0)
            return true;
        if (ready < 0 && errno != EINTR)
            return ignis__peer_error_set(error, IGNIS_DIAG_CHANNEL_IO, "poll: %s", strerror(errno));
    } while (slice > 0);
    return ignis__peer_error_set_timeout(error, until, what);
}

IGNIS__COLD IGNIS__PRIVATE bool ignis__peer_error_set_errno(ignis__peer_error *error, const char *what)
{
    int os_error = errno;
    if (os_error == EPIPE || os_error == ECONNRESET || os_error == ENOTCONN)
        return ignis__peer_error_set_lost(error);
    return ignis__peer_error_set(error, IGNIS_DIAG_CHANNEL_IO, "%s: %s", what, strerror(os_error));
}

#endif

/*  >>peer.sha256 - SHA-256 (FIPS 180-4) and HMAC (RFC 2104)

    Computes hashes and proofs.
    Uses: nothing.
    Invariants: the same bytes on every machine. */

static uint32_t ignis__sha_rotate(uint32_t x, int by) { return x >> by | x << (32 - by); }

static void ignis__sha_block(ignis__sha *sha)
{
    static const uint32_t primes[64] = {
        0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
        0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
        0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
        0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
        0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
        0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
        0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
        0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};
    uint32_t w[64], s[8];
    int i;
    for (i = 0; i < 16; i++)
        w[i] = (uint32_t)sha->block[4 * i] << 24 | (uint32_t)sha->block[4 * i + 1] << 16 |
               (uint32_t)sha->block[4 * i + 2] << 8 | sha->block[4 * i + 3];
    for (; i < 64; i++)
        w[i] = w[i - 16] + w[i - 7] +
               (ignis__sha_rotate(w[i - 15], 7) ^ ignis__sha_rotate(w[i - 15], 18) ^ w[i - 15] >> 3) +
               (ignis__sha_rotate(w[i - 2], 17) ^ ignis__sha_rotate(w[i - 2], 19) ^ w[i - 2] >> 10);
    memcpy(s, sha->state, sizeof s);
    for (i = 0; i < 64; i++) {
        uint32_t a = s[7] + (ignis__sha_rotate(s[4], 6) ^ ignis__sha_rotate(s[4], 11) ^ ignis__sha_rotate(s[4], 25)) +
                     ((s[4] & s[5]) ^ (~s[4] & s[6])) + primes[i] + w[i];
        uint32_t b = (ignis__sha_rotate(s[0], 2) ^ ignis__sha_rotate(s[0], 13) ^ ignis__sha_rotate(s[0], 22)) +
                     ((s[0] & s[1]) ^ (s[0] & s[2]) ^ (s[1] & s[2]));
        memmove(s + 1, s, 7 * sizeof *s);
        s[4] += a;
        s[0] = a + b;
    }
    for (i = 0; i < 8; i++)
        sha->state[i] += s[i];
}

IGNIS__PRIVATE void ignis__sha_begin(ignis__sha *sha)
{
    static const uint32_t start[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                      0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    memcpy(sha->state, start, sizeof start);
    sha->size = 0;
}

IGNIS__ONE_COPY IGNIS__PRIVATE void ignis__sha_add(ignis__sha *sha, const void *data, size_t size)
{
    const unsigned char *at = (const unsigned char *)data;
    while (size-- > 0) {
        sha->block[sha->size++ % 64] = *at++;
        if (sha->size % 64 == 0)
            ignis__sha_block(sha);
    }
}

IGNIS__PRIVATE void ignis__sha_end(ignis__sha *sha, unsigned char out[32])
{
    static const unsigned char padding[64] = {0x80};
    unsigned char bits[8];
    int i;
    for (i = 0; i < 8; i++)
        bits[i] = (unsigned char)(sha->size * 8 >> (56 - 8 * i));
    ignis__sha_add(sha, padding, 1 + (119 - sha->size % 64) % 64);
    ignis__sha_add(sha, bits, sizeof bits);
    for (i = 0; i < 32; i++)
        out[i] = (unsigned char)(sha->state[i / 4] >> (24 - i % 4 * 8));
}

/*  Computes an HMAC over the concatenation of two texts; only holders of the secret can. */
IGNIS__PRIVATE void ignis__hmac(const unsigned char secret[IGNIS__SECRET], const void *a, size_t a_size, const void *b,
                                size_t b_size, unsigned char out[32])
{
    unsigned char pad[64];
    ignis__sha sha;
    int i;
    for (i = 0; i < 64; i++)
        pad[i] = (unsigned char)(0x36 ^ (i < IGNIS__SECRET ? secret[i] : 0));
    ignis__sha_begin(&sha);
    ignis__sha_add(&sha, pad, sizeof pad);
    ignis__sha_add(&sha, a, a_size);
    ignis__sha_add(&sha, b, b_size);
    ignis__sha_end(&sha, out);
    for (i = 0; i < 64; i++)
        pad[i] ^= 0x36 ^ 0x5c;
    ignis__sha_begin(&sha);
    ignis__sha_add(&sha, pad, sizeof pad);
    ignis__sha_add(&sha, out, 32);
    ignis__sha_end(&sha, out);
}

/*  >>peer.connection - connections: messages over sockets, pipes and shared memory

    Sends and receives messages with a header, whatever carries the bytes. A table of functions
    (ignis__connection_kind) does the transfer.
    Uses: error.c, the system's files.
    Invariants: messages of a direction are counted without gaps; a message that arrives in parts waits in the
    inbox; a message that was sent in part is finished before the next.
    Locks: send_lock around the outbox, receive_lock around the inbox; closing and lost are atomic. */

/*  Bytes of the descriptors' numbers after a message. */
static size_t ignis__connection_number_bytes(const ignis__connection *connection, size_t fd_count)
{
    return connection->kind->duplicate ? fd_count * sizeof(uint64_t) : 0;
}

/*  Checks the header of the message that is arriving. */
static bool ignis__message_header_check(ignis__peer_error *error, const ignis__connection *connection)
{
    ignis__message_header header;
    memcpy(&header, connection->inbox, sizeof header);
    if (header.magic != IGNIS__MESSAGE_MAGIC)
        return ignis__peer_error_set(error, IGNIS_DIAG_CHANNEL_MESSAGE,
                                     "a message begins with 0x%08x; expected the magic number of Ignis", header.magic);
    if (header.version != IGNIS__PROTOCOL_VERSION)
        return ignis__peer_error_set(error, IGNIS_DIAG_CHANNEL_MESSAGE,
                                     "the peer has version %d of the protocol, this side version %d", header.version,
                                     IGNIS__PROTOCOL_VERSION);
    if (header.size > connection->capacity ||
        header.fd_count > (connection->kind->descriptors && (connection->kind->packets || connection->is_authenticated)
                               ? IGNIS_CHANNEL_MAX_FDS
                               : 0u))
        return ignis__peer_error_set(error, IGNIS_DIAG_CHANNEL_MESSAGE,
                                     "a message announces %u bytes and %u descriptors, above the limit", header.size,
                                     header.fd_count);
    if (header.sequence != connection->received)
        return ignis__peer_error_set(error, IGNIS_DIAG_CHANNEL_MESSAGE, "message %llu came; expected message %llu",
                                     (unsigned long long)header.sequence, (unsigned long long)connection->received);
    return true;
}

IGNIS__PRIVATE ignis__message_header ignis__message_header_read(const ignis__connection *connection)
{
    ignis__message_header header;
    memcpy(&header, connection->inbox, sizeof header);
    return header;
}

IGNIS__PRIVATE void ignis__inbox_clear(ignis__connection *connection)
{
    ignis__fds_close(connection->inbox_fds, connection->inbox_fd_count);
    connection->inbox_fd_count = 0;
    connection->inbox_size = 0;
    connection->inbox_is_complete = false;
}

/*  Reads the descriptors that came as numbers after the complete message in the inbox. */
static bool ignis__inbox_read_descriptors(ignis__peer_error *error, ignis__connection *connection)
{
    ignis__message_header header = ignis__message_header_read(connection);
    uint64_t number;
    uint32_t i;
    for (i = 0; connection->kind->duplicate && i < header.fd_count; i++) {
        memcpy(&number, connection->inbox + sizeof header + header.size + i * sizeof number, sizeof number);
        if (number == 0 || number > INT32_MAX)
            return ignis__peer_error_set(error, IGNIS_DIAG_CHANNEL_MESSAGE, "a message carries an invalid handle");
        connection->inbox_fds[i] = (int)number;
        connection->inbox_fd_count = (int)i + 1;
    }
    return true;
}

/*  Removes the message from the inbox. */
IGNIS__PRIVATE void ignis__inbox_remove(ignis__connection *connection)
{
    ignis__inbox_clear(connection);
    connection->received++;
}

/*  Receives the next message into the inbox, unless it is there already. Bytes that came before a deadline
    stay in the inbox. */
IGNIS__PRIVATE bool ignis__connection_receive(ignis__peer_error *error, ignis__connection *connection,
                                              const ignis__deadline *until)
{
    size_t head_size = sizeof(ignis__message_header);
    while (!connection->inbox_is_complete) {
        size_t wanted = head_size;
        int64_t got;
        bool whole;
        if (connection->kind->packets)
            wanted += connection->capacity;
        else if (connection->inbox_size >= head_size)
            wanted += ignis__message_header_read(connection).size +
                      ignis__connection_number_bytes(connection, ignis__message_header_read(connection).fd_count);
        got = connection->kind->read(error, connection, connection->inbox + connection->inbox_size,
                                     wanted - connection->inbox_size);
        if (got < 0)
            return false;
        if (got == 0) {
            if (!connection->kind->wait(error, connection, false, until, "nothing came from the peer"))
                return false;
            continue;
        }
        if (connection->kind->packets && (size_t)got < head_size)
            return ignis__peer_error_set(error, IGNIS_DIAG_CHANNEL_MESSAGE,
                                         "a message of %lld bytes is shorter than its header", (long long)got);
        connection->pause_us[0] = 0;
        connection->inbox_size += (size_t)got;
        if (connection->inbox_size < head_size)
            continue;
        if (!ignis__message_header_check(error, connection))
            return false;
        whole = connection->inbox_size ==
                head_size + ignis__message_header_read(connection).size +
                    ignis__connection_number_bytes(connection, ignis__message_header_read(connection).fd_count);
        if (whole && !ignis__inbox_read_descriptors(error, connection))
            return false;
        if (connection->kind->packets &&
            (!whole || (uint32_t)connection->inbox_fd_count != ignis__message_header_read(connection).fd_count))
            return ignis__peer_error_set(error, IGNIS_DIAG_CHANNEL_MESSAGE,
                                         "a message announces %u bytes and %u descriptors, and has %lld and %d",
                                         ignis__message_header_read(connection).size,
                                         ignis__message_header_read(connection).fd_count,
                                         (long long)(connection->inbox_size - head_size), connection->inbox_fd_count);
        connection->inbox_is_complete = whole;
    }
    return true;
}

/*  Clears the outbox without sending the rest. Descriptors of an incomplete message are taken back. */
static void ignis__outbox_clear(ignis__connection *connection)
{
    ignis__message_header header;
    uint64_t numbers[IGNIS_CHANNEL_MAX_FDS];
    if (connection->outbox_done < connection->outbox_size && connection->kind->close_duplicates) {
        memcpy(&header, connection->outbox, sizeof header);
        memcpy(numbers, connection->outbox + sizeof header + header.size, header.fd_count * sizeof *numbers);
        connection->kind->close_duplicates(connection, numbers, (int)header.fd_count);
    }
    connection->outbox_size = connection->outbox_done = 0;
}

/*  Writes the outbox to the system. */
IGNIS__PRIVATE bool ignis__connection_flush(ignis__peer_error *error, ignis__connection *connection,
                                            const ignis__deadline *until)
{
    while (connection->outbox_done < connection->outbox_size) {
        int64_t written = connection->kind->write(error, connection);
        if (written < 0)
            return false;
        connection->outbox_done += (size_t)written;
        if (written > 0)
            connection->pause_us[1] = 0;
        else if (!connection->kind->wait(error, connection, true, until, "the peer does not read"))
            return false;
    }
    ignis__outbox_clear(connection);
    ignis__atomic_store(&connection->unsent, 0);
    return true;
}

/*  Sends one message. The caller holds the send lock, or no other thread has the connection. A message that a
    stream has taken in part counts as sent: its rest stays in the outbox. */
IGNIS__PRIVATE bool ignis__connection_send(ignis__peer_error *error, ignis__connection *connection, int type,
                                           const void *data, size_t size, const int *fds, int fd_count,
                                           const ignis__deadline *until)
{
    ignis__message_header header;
    uint64_t numbers[IGNIS_CHANNEL_MAX_FDS];
    size_t tail = ignis__connection_number_bytes(connection, (size_t)fd_count);
    if (!ignis__connection_flush(error, connection, until) ||
        (tail > 0 && !connection->kind->duplicate(error, connection, fds, fd_count, numbers)))
        return false;
    header.magic = IGNIS__MESSAGE_MAGIC;
    header.version = IGNIS__PROTOCOL_VERSION;
    header.type = (uint16_t)type;
    header.size = (uint32_t)size;
    header.fd_count = (uint32_t)fd_count;
    header.sequence = connection->sent;
    memcpy(connection->outbox, &header, sizeof header);
    if (size > 0)
        memcpy(connection->outbox + sizeof header, data, size);
    if (tail > 0)
        memcpy(connection->outbox + sizeof header + size, numbers, tail);
    connection->outbox_size = sizeof header + size + tail;
    connection->outbox_fds = fds;
    connection->outbox_fd_count = fd_count;
    if (!ignis__connection_flush(error, connection, until) &&
        (connection->outbox_done == 0 || error->diagnostic != IGNIS_DIAG_CHANNEL_TIMEOUT)) {
        ignis__outbox_clear(connection);
        return false;
    }
    ignis__atomic_store(&connection->unsent, connection->outbox_size - connection->outbox_done);
    connection->sent++;
    return true;
}

IGNIS__PRIVATE void ignis__connection_destroy(ignis__connection *connection)
{
    ignis__peer_error ignored;
    int left = 1000;
    if (!connection)
        return;
    /* closes handles that arrived and were not taken; later ones stay open */
    if (connection->kind->duplicate && connection->capacity > 0) {
        while (left-- > 0 && ignis__connection_receive(&ignored, connection, &ignis__deadline_now))
            ignis__inbox_remove(connection);
        ignis__outbox_clear(connection);
    }
    ignis__inbox_clear(connection);
    if (connection->owns_path)
        connection->kind->remove(connection);
#ifndef _WIN32
    if (connection->shared)
        ignis__shared_unmap((void *)connection->shared, connection->shared_bytes);
#endif
    if (connection->out != connection->in)
        ignis__peer_file_close(&connection->out);
    ignis__peer_file_close(&connection->in);
    ignis__peer_file_close(&connection->shared_file);
    ignis__peer_file_close(&connection->process);
    ignis__free(connection->inbox);
    ignis__free(connection->outbox);
    ignis__free(connection);
}

/*  Reserves buffers for messages of `capacity` bytes. No message may be arriving or leaving. */
IGNIS__PRIVATE bool ignis__connection_reserve(ignis__peer_error *error, ignis__connection *connection, size_t capacity)
{
    size_t bytes =
        sizeof(ignis__message_header) + capacity + ignis__connection_number_bytes(connection, IGNIS_CHANNEL_MAX_FDS);
    if (connection->capacity >= capacity)
        return true;
    ignis__free(connection->inbox);
    ignis__free(connection->outbox);
    connection->inbox = (unsigned char *)ignis__alloc(bytes);
    connection->outbox = (unsigned char *)ignis__alloc(bytes);
    connection->capacity = connection->inbox && connection->outbox ? capacity : 0;
    return connection->capacity || ignis__peer_error_set_memory(error, 2 * bytes);
}

IGNIS__PRIVATE ignis__connection *ignis__connection_create(ignis__peer_error *error, const ignis__connection_kind *kind,
                                                           const char *path)
{
    ignis__connection *connection = (ignis__connection *)ignis__alloc(sizeof *connection);
    if (!connection) {
        ignis__peer_error_set_memory(error, sizeof *connection);
        return NULL;
    }
    connection->in = connection->out = connection->shared_file = connection->process = IGNIS__NO_FILE;
    connection->kind = kind;
    connection->peer_uid = -1;
    snprintf(connection->path, sizeof connection->path, "%s", path);
    ignis__mutex_init(&connection->send_lock);
    ignis__mutex_init(&connection->receive_lock);
    return connection;
}

IGNIS__PRIVATE bool ignis__connection_check(ignis__peer_error *error, const ignis__connection *connection)
{
    uint64_t lost = ignis__atomic_load(&connection->lost);
    if (!lost)
        return true;
    ignis__peer_error_set(error, IGNIS_DIAG_CHANNEL_LOST,
                          lost == 2 ? "the peer has closed the channel" : "the channel failed earlier");
    error->expected = lost == 2;
    return false;
}

/*  >>peer.secret_file - files of names, which hold secrets

    Gives a name to one live server of this user, and its secret to clients of this user.
    Uses: the private folder, the system's file locks.
    Invariants: the server keeps the file locked, so a name is free when its server has died.
    Locks: the lock of the file. */

#ifdef _WIN32

IGNIS__PRIVATE bool ignis__name_file_lock(ignis__peer_error *error, const char *path, ignis__file *file)
{
    int tries;
    for (tries = 0; tries < 100; tries++) {
        *file = ignis__file_handle(path, GENERIC_READ | GENERIC_WRITE | DELETE, FILE_SHARE_READ, CREATE_ALWAYS,
                                   FILE_ATTRIBUTE_NORMAL | FILE_FLAG_DELETE_ON_CLOSE);
        if (*file != IGNIS__NO_FILE)
            return true;
        if (GetLastError() != ERROR_ACCESS_DENIED)
            break;
        ignis__sleep_us(1000); /* another process reads the file of a dead server */
    }
    if (GetLastError() == ERROR_SHARING_VIOLATION)
        return ignis__peer_error_set(error, IGNIS_DIAG_CHANNEL_IO, "a live server already has the name: %s", path);
    return ignis__peer_error_set(error, IGNIS_DIAG_CHANNEL_IO, "%s: Windows error %lu", path, GetLastError());
}
IGNIS__PRIVATE bool ignis__name_file_write(ignis__file file, const void *data, size_t size)
{
    DWORD written = 0;
    return WriteFile(file, data, (DWORD)size, &written, NULL) && written == size;
}
IGNIS__PRIVATE bool ignis__name_file_read(const char *path, void *data, size_t size)
{
    DWORD got = 0;
    HANDLE file = ignis__file_handle(path, GENERIC_READ, IGNIS__SHARE_ALL, OPEN_EXISTING, 0);
    bool ok = file != INVALID_HANDLE_VALUE && ReadFile(file, data, (DWORD)size, &got, NULL) && got == size;
    if (file != INVALID_HANDLE_VALUE)
        CloseHandle(file);
    return ok;
}
IGNIS__PRIVATE void ignis__name_file_delete(const char *path) { (void)path; } /* deleted with its handle */

#else /* POSIX */

IGNIS__PRIVATE bool ignis__name_file_lock(ignis__peer_error *error, const char *path, ignis__file *file)
{
    struct stat info, now;
    int tries;
    for (tries = 0; tries < 100; tries++) {
        int fd = ignis__fd_register(open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600));
        bool ours;
        if (fd < 0 || fstat(fd, &info) != 0) {
            ignis__peer_error_set(error, IGNIS_DIAG_CHANNEL_IO, "%s: %s", path, strerror(errno));
            ignis__peer_file_close(&fd);
            return false;
        }
        ours = S_ISREG(info.st_mode) && ignis__stat_is_ours(&info);
        if (ours && flock(fd, LOCK_EX | LOCK_NB) == 0 && lstat(path, &now) == 0 && now.st_ino == info.st_ino &&
            now.st_dev == info.st_dev) {
            *file = fd;
            return true;
        }
        ignis__peer_file_close(&fd);
        if (!ours)
            return ignis__peer_error_set(error, IGNIS_DIAG_CHANNEL_IO,
                                         "%s must be a regular file of this user with mode 0600", path);
        ignis__sleep_us(1000); /* the previous server may be closing */
    }
    return ignis__peer_error_set(error, IGNIS_DIAG_CHANNEL_IO, "a live server already has the name: %s is locked",
                                 path);
}
IGNIS__PRIVATE bool ignis__name_file_write(ignis__file file, const void *data, size_t size)
{
    return ftruncate(file, 0) == 0 && pwrite(file, data, size, 0) == (ssize_t)size;
}
IGNIS__PRIVATE bool ignis__name_file_read(const char *path, void *data, size_t size)
{
    int fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    struct stat info;
    bool ok = fd >= 0 && fstat(fd, &info) == 0 && S_ISREG(info.st_mode) && ignis__stat_is_ours(&info) &&
              read(fd, data, size) == (ssize_t)size;
    if (fd >= 0)
        close(fd);
    return ok;
}
IGNIS__PRIVATE void ignis__name_file_delete(const char *path) { (void)unlink(path); }

#endif

/*  >>peer.listener - server: accepts connections and checks their proofs

    Accepts clients, runs the handshake of all pending ones, and hands out those that know the secret.
    Uses: connections, files of names.
    Invariants: a client that proves nothing costs one of 64 places, for 5 s at most; the oldest makes room
    for new ones.
    Locks: listener->lock, held by the caller that accepts. */

#define IGNIS__LISTENER_PATIENCE_NS 5000000000 /* for the handshake of a client */
#define IGNIS__LISTENER_CROWDED_NS 250000000   /* for the oldest client, while others wait for a place */

/*  Computes a proof over both nonces, so it cannot be replayed, and over the claim, so it belongs to the
    prover. */
IGNIS__PRIVATE void ignis__connection_proof(const ignis__connection *connection, const unsigned char *secret,
                                            bool of_server, const void *claim, size_t size, unsigned char proof[32])
{
    struct {
        char side[8];
        unsigned char nonces[2][IGNIS__NONCE];
    } said;
    memcpy(said.side, of_server ? "server.." : "client..", sizeof said.side);
    memcpy(said.nonces, connection->nonces, sizeof said.nonces);
    ignis__hmac(secret, &said, sizeof said, claim, size, proof);
}

#ifdef __linux__

/*  Adds a descriptor to those that listener->poll reports, or removes it. */
static void ignis__listener_poll(ignis__listener *listener, int fd, bool add)
{
    struct epoll_event event;
    memset(&event, 0, sizeof event);
    event.events = EPOLLIN;
    if (listener->poll < 0)
        listener->poll = ignis__fd_register(epoll_create1(EPOLL_CLOEXEC));
    if (fd >= 0)
        (void)epoll_ctl(listener->poll, add ? EPOLL_CTL_ADD : EPOLL_CTL_DEL, fd, &event);
}

/*  Waits until a client comes or sends, at most `ms`. */
static void ignis__listener_wait(const ignis__listener *listener, int ms)
{
    const ignis__deadline until = ignis__deadline_in((int64_t)ms * 1000000);
    ignis__peer_error late;
    /* shared memory cannot be polled */
    if (listener->file < 0 && (listener->pending_count == 0 || listener->pending[0].connection->in < 0))
        ignis__sleep_us(1000);
    /* the queue would wake the poll, and all places are taken */
    else if (listener->pending_count == IGNIS__LISTENER_PENDING)
        ignis__sleep_us(1000);
    else
        (void)ignis__fd_wait(&late, listener->poll, POLLIN, &until, "");
}

#else

static void ignis__listener_poll(ignis__listener *listener, ignis__file file, bool add)
{
    (void)listener, (void)file, (void)add;
}
static void ignis__listener_wait(const ignis__listener *listener, int ms)
{
    (void)listener, (void)ms;
    ignis__sleep_us(1000);
}

#endif

/*  Removes a pending client; the others keep their order. */
static ignis__connection *ignis__listener_remove(ignis__listener *listener, int index)
{
    ignis__connection *connection = listener->pending[index].connection;
    ignis__listener_poll(listener, connection->in, false);
    listener->pending_count--;
    memmove(&listener->pending[index], &listener->pending[index + 1],
            sizeof listener->pending[0] * (size_t)(listener->pending_count - index));
    return connection;
}

/*  Counts a refused client; only the first one is logged. */
static void ignis__listener_log_refused(const char *call, ignis__listener *listener, const char *why)
{
    if (ignis__atomic_add(&listener->refused, 1) == 1)
        ignis__log(IGNIS_LOG_WARNING, IGNIS_DIAG_CHANNEL_MESSAGE,
                   "%s: a connection to %s was refused: %s (further ones are only counted)", call, listener->path, why);
}

/*  Refuses a client that is no longer pending. */
IGNIS__PRIVATE void ignis__listener_refuse(const char *call, ignis__listener *listener, ignis__connection *connection,
                                           bool is_authenticated, const char *why)
{
    ignis__peer_error ignored;
    if (ignis__connection_reserve(&ignored, connection, IGNIS__HANDSHAKE_BYTES) &&
        (!connection->kind->connected || connection->kind->connected(connection)))
        (void)ignis__connection_send(&ignored, connection, IGNIS__MESSAGE_REFUSED, why,
                                     is_authenticated ? strlen(why) : 0, NULL, 0, &ignis__deadline_now);
    ignis__connection_destroy(connection);
    ignis__listener_log_refused(call, listener, why);
}

/*  Disconnects the oldest pending client without a message. A client that was only slow connects again. */
static void ignis__listener_drop_oldest(const char *call, ignis__listener *listener, const char *why)
{
    ignis__connection_destroy(ignis__listener_remove(listener, 0));
    ignis__listener_log_refused(call, listener, why);
}

/*  Accepts the clients that wait, while places are free. */
static bool ignis__listener_accept(const char *call, ignis__peer_error *error, ignis__listener *listener)
{
    for (;;) {
        ignis__connection *fresh;
        if (listener->pending_count == IGNIS__LISTENER_PENDING) {
            if (ignis__monotonic_ns() - listener->pending[0].since_ns < IGNIS__LISTENER_CROWDED_NS)
                return true;
            ignis__listener_drop_oldest(call, listener, "too many clients at once do not authenticate");
        }
        fresh = ignis__connection_create(error, listener->kind, listener->path);
        if (!fresh)
            return false;
        error->diagnostic = IGNIS_DIAG_NONE;
        if (!listener->kind->accept(error, listener, fresh) ||
            !ignis__connection_reserve(error, fresh, IGNIS__HANDSHAKE_BYTES)) {
            ignis__connection_destroy(fresh);
            if (error->diagnostic == IGNIS_DIAG_NONE || listener->pending_count == 0)
                return error->diagnostic == IGNIS_DIAG_NONE;
            /* too few descriptors, or too little memory */
            ignis__listener_drop_oldest(call, listener, error->why);
            continue;
        }
        listener->arrivals++;
        ignis__listener_poll(listener, fresh->in, true);
        listener->pending[listener->pending_count].connection = fresh;
        listener->pending[listener->pending_count++].since_ns = fresh->kind->connected ? 0 : ignis__monotonic_ns();
    }
}

/*  Takes the next step of a handshake. True: the client has authenticated, and its claim is in the inbox.
    False without a diagnostic: more messages are expected; with one: refuse it. */
static bool ignis__listener_handshake(ignis__peer_error *error, const ignis__listener *listener,
                                      ignis__connection *connection)
{
    struct {
        unsigned char nonce[IGNIS__NONCE], proof[32];
    } challenge;
    unsigned char proof[32];
    const unsigned char *body = connection->inbox + sizeof(ignis__message_header);
    const ignis_diagnostic no = IGNIS_DIAG_CHANNEL_MESSAGE;
    ignis__message_header header;
#ifndef _WIN32
    if (connection->kind->packets && connection->peer_uid != (int64_t)geteuid())
        return ignis__peer_error_set(error, no, "the client belongs to user %lld, this process to user %lld",
                                     (long long)connection->peer_uid, (long long)geteuid());
#endif
    while (ignis__connection_receive(error, connection, &ignis__deadline_now)) {
        header = ignis__message_header_read(connection);
        if (connection->received == 0 && header.type == IGNIS__MESSAGE_HELLO && header.size == IGNIS__NONCE &&
            header.fd_count == 0) {
            memcpy(connection->nonces[0], body, IGNIS__NONCE);
            if (!ignis__random_bytes(connection->nonces[1], IGNIS__NONCE))
                return ignis__peer_error_set(error, IGNIS_DIAG_CHANNEL_IO, "the system returned no random bytes");
            memcpy(challenge.nonce, connection->nonces[1], IGNIS__NONCE);
            ignis__connection_proof(connection, listener->secret, true, NULL, 0, challenge.proof);
            ignis__inbox_remove(connection);
            if (!ignis__connection_send(error, connection, IGNIS__MESSAGE_CHALLENGE, &challenge, sizeof challenge, NULL,
                                        0, &ignis__deadline_now))
                return false;
        } else if (connection->received == 1 && header.type == IGNIS__MESSAGE_PROOF && header.size >= sizeof proof &&
                   header.fd_count == 0) {
            ignis__connection_proof(connection, listener->secret, false, body + sizeof proof,
                                    header.size - sizeof proof, proof);
            return ignis__bytes_equal(proof, body, sizeof proof) ||
                   ignis__peer_error_set(error, no, "the client has another token");
        } else {
            return ignis__peer_error_set(error, no, "the client violates the handshake");
        }
    }
    if (error->diagnostic == IGNIS_DIAG_CHANNEL_TIMEOUT)
        error->diagnostic = IGNIS_DIAG_NONE;
    return false;
}

/*  Returns the next authenticated client, with its claim in the inbox: the caller welcomes or refuses it.
    NULL, with the error set, if the deadline passes. */
IGNIS__COLD IGNIS__PRIVATE ignis__connection *ignis__listener_next(const char *call, ignis__peer_error *error,
                                                                   ignis__listener *listener,
                                                                   const ignis__deadline *until)
{
    for (;;) {
        int i, slice;
        if (!ignis__listener_accept(call, error, listener))
            return NULL;
        for (i = 0; i < listener->pending_count; i++) {
            ignis__connection *connection = listener->pending[i].connection;
            int64_t now_ns = ignis__monotonic_ns();
            bool is_authenticated = ignis__listener_handshake(error, listener, connection),
                 waits = !is_authenticated && error->diagnostic == IGNIS_DIAG_NONE;
            if (is_authenticated && connection->kind->connected)
                (void)connection->kind->connected(
                    connection); /* it may have sent everything at once: read its process here */
            if (is_authenticated)
                return ignis__listener_remove(listener, i);
            if (waits && listener->pending[i].since_ns == 0 && connection->kind->connected &&
                connection->kind->connected(connection))
                listener->pending[i].since_ns = now_ns;
            if (waits && listener->pending[i].since_ns &&
                now_ns - listener->pending[i].since_ns >= IGNIS__LISTENER_PATIENCE_NS)
                waits = ignis__peer_error_set(error, IGNIS_DIAG_CHANNEL_MESSAGE,
                                              "the client did not authenticate within %d s",
                                              (int)(IGNIS__LISTENER_PATIENCE_NS / 1000000000));
            if (!waits)
                ignis__listener_refuse(call, listener, ignis__listener_remove(listener, i--), false, error->why);
        }
        slice = ignis__deadline_slice_ms(until, 50);
        if (slice == 0) {
            ignis__peer_error_set_timeout(error, until, "no client connected");
            return NULL;
        }
        ignis__listener_wait(listener, slice);
    }
}

/*  Reads the claim of an authenticated client. False, with the error set, if its size is wrong. */
IGNIS__PRIVATE bool ignis__claim_read(ignis__peer_error *error, const ignis__connection *connection, void *claim,
                                      size_t size)
{
    if (ignis__message_header_read(connection).size != 32 + size)
        return ignis__peer_error_set(error, IGNIS_DIAG_CHANNEL_MESSAGE, "the client has another version of Ignis");
    memcpy(claim, connection->inbox + sizeof(ignis__message_header) + 32, size);
    return true;
}

/*  Marks the peer as authenticated; from here on its messages may carry descriptors. */
IGNIS__PRIVATE void ignis__connection_set_authenticated(ignis__connection *connection)
{
#ifdef _WIN32
    HANDLE process = OpenProcess(PROCESS_DUP_HANDLE | SYNCHRONIZE, FALSE, (DWORD)connection->peer_pid);
    connection->process = process ? process : IGNIS__NO_FILE;
#endif
    connection->is_authenticated = true;
}

/*  Welcomes an authenticated client; from here on messages may have `capacity` bytes. */
IGNIS__PRIVATE bool ignis__connection_welcome(ignis__peer_error *error, ignis__connection *connection, size_t capacity)
{
    ignis__inbox_remove(connection);
    ignis__connection_set_authenticated(connection);
    if (connection->owns_path)
        connection->kind->remove(connection);
    connection->owns_path = false;
    return ignis__connection_reserve(error, connection, capacity) &&
           ignis__connection_send(error, connection, IGNIS__MESSAGE_WELCOME, NULL, 0, NULL, 0, &ignis__deadline_now);
}

IGNIS__PRIVATE void ignis__listener_close(ignis__listener *listener)
{
    while (listener->pending_count > 0)
        ignis__connection_destroy(ignis__listener_remove(listener, 0));
#ifndef _WIN32
    if (listener->owns_path)
        (void)unlink(listener->path);
#endif
    listener->owns_path = false;
    ignis__peer_file_close(&listener->file);
    ignis__peer_file_close(&listener->poll);
    if (listener->name_file != IGNIS__NO_FILE)
        ignis__name_file_delete(listener->name_path);
    ignis__peer_file_close(&listener->name_file);
}

/*  Creates a listener that is not open yet. NULL, and reported, if host memory is short. */
IGNIS__PRIVATE ignis__listener *ignis__listener_new(const char *call, const ignis__connection_kind *kind,
                                                    const char *path)
{
    ignis__listener *listener = (ignis__listener *)ignis__alloc_for(call, sizeof *listener);
    if (!listener)
        return NULL;
    listener->kind = kind;
    listener->file = listener->name_file = listener->poll = IGNIS__NO_FILE;
    snprintf(listener->path, sizeof listener->path, "%s", path);
    ignis__mutex_init(&listener->lock);
    return listener;
}

IGNIS__PRIVATE void ignis__listener_free(ignis__listener *listener)
{
    if (listener)
        ignis__listener_close(listener);
    ignis__free(listener);
}

/*  Opens a listener. With a name_path it owns that name alone. Its secret is `secret`, or a new one that it
    writes to that file. */
IGNIS__COLD IGNIS__PRIVATE bool ignis__listener_open(const char *call, ignis__peer_error *error,
                                                     ignis__listener *listener, const char *name_path,
                                                     const unsigned char *secret)
{
    ignis__name_record record;
    memset(&record, 0, sizeof record);
    record.version = IGNIS__PROTOCOL_VERSION;
    record.pid = ignis__process_id();
    record.has_secret = !secret;
    if (secret)
        memcpy(listener->secret, secret, sizeof listener->secret);
    if ((!secret && !ignis__random_bytes(listener->secret, sizeof listener->secret)) ||
        !ignis__random_bytes(&listener->place, sizeof listener->place))
        return ignis__peer_error_set(error, IGNIS_DIAG_CHANNEL_IO, "the system returned no random bytes for a token");
    record.place = listener->place;
    if (record.has_secret)
        memcpy(record.secret, listener->secret, sizeof record.secret);
    if (name_path) {
        snprintf(listener->name_path, sizeof listener->name_path, "%s", name_path);
        if (!ignis__name_file_lock(error, name_path, &listener->name_file))
            return false;
        if (!ignis__name_file_write(listener->name_file, &record, sizeof record))
            return ignis__peer_error_set(error, IGNIS_DIAG_CHANNEL_IO, "%s cannot be written", name_path);
    }
    if (listener->file == IGNIS__NO_FILE && listener->kind->listen && !listener->kind->listen(error, listener))
        return false;
    ignis__listener_poll(listener, listener->file, true);
    return ignis__listener_accept(call, error, listener);
}

/*  >>peer.connect - client: connects to a listener and authenticates

    Repeats connecting and the handshake until both sides have proven that they know the secret, or the deadline
    passes.
    Uses: connections, files of names.
    Invariants: an answer without a proof never ends the attempts, as the real server may listen later.
    Locks: none; the connection belongs to the calling thread until it is returned. */

/*  Sends one message of the handshake and receives the answer. If the server is lost meanwhile, *again is
    set: another one may listen at the next attempt. */
static bool ignis__connection_request(ignis__peer_error *error, ignis__connection *connection, int type,
                                      const void *data, size_t size, const ignis__deadline *until, bool *again)
{
    bool ok = ignis__connection_send(error, connection, type, data, size, NULL, 0, until) &&
              ignis__connection_receive(error, connection, until);
    *again = !ok && error->diagnostic == IGNIS_DIAG_CHANNEL_LOST;
    return ok;
}

/*  Authenticates both sides by the secret (NULL: the one in the file of the name), and sends the client's
    claim. *again: the next attempt may succeed. An unauthenticated answer ends nothing, since the real server
    may listen there soon. */
static bool ignis__connection_authenticate(ignis__peer_error *error, ignis__connection *connection,
                                           const ignis__client *client, const ignis__deadline *until, bool *again)
{
    const unsigned char *secret = client->secret;
    unsigned char message[32 + IGNIS__HANDSHAKE_BYTES / 2], proof[32];
    const unsigned char *body;
    ignis__name_record record;
    ignis__message_header header;
    bool is_authenticated = false;
    *again = true;
    if (!secret) { /* read after connecting: a server that replaced another one has another secret */
        if (!ignis__name_file_read(client->name_path, &record, sizeof record))
            return ignis__peer_error_set(error, IGNIS_DIAG_CHANNEL_IO, "no token in %s", client->name_path);
        *again = record.version == IGNIS__PROTOCOL_VERSION && record.has_secret;
        if (!*again)
            return ignis__peer_error_set(error, IGNIS_DIAG_CHANNEL_MESSAGE,
                                         "the server has its own token or another version: set desc.token");
        secret = record.secret;
    }
    *again = false;
    if (!ignis__connection_reserve(error, connection, IGNIS__HANDSHAKE_BYTES))
        return false;
    if (!ignis__random_bytes(connection->nonces[0], IGNIS__NONCE))
        return ignis__peer_error_set(error, IGNIS_DIAG_CHANNEL_IO, "the system returned no random bytes");
    if (!ignis__connection_request(error, connection, IGNIS__MESSAGE_HELLO, connection->nonces[0], IGNIS__NONCE, until,
                                   again)) {
        *again = *again || error->diagnostic == IGNIS_DIAG_CHANNEL_MESSAGE;
        return false;
    }
    header = ignis__message_header_read(connection);
    body = connection->inbox + sizeof header;
    if (header.type == IGNIS__MESSAGE_CHALLENGE && header.size == IGNIS__NONCE + sizeof proof) {
        memcpy(connection->nonces[1], body, IGNIS__NONCE);
        ignis__connection_proof(connection, secret, true, NULL, 0, proof);
        if (!ignis__bytes_equal(proof, body + IGNIS__NONCE, sizeof proof)) {
            *again = true;
            return ignis__peer_error_set(error, IGNIS_DIAG_CHANNEL_MESSAGE, "the server at %s has another token",
                                         connection->path);
        }
        is_authenticated = true;
        ignis__inbox_remove(connection);
        ignis__connection_proof(connection, secret, false, client->claim, client->claim_size, message);
        memcpy(message + sizeof proof, client->claim, client->claim_size);
        if (!ignis__connection_request(error, connection, IGNIS__MESSAGE_PROOF, message,
                                       sizeof proof + client->claim_size, until, again))
            return false;
        header = ignis__message_header_read(connection);
    }
    if (is_authenticated && header.type == IGNIS__MESSAGE_WELCOME) {
        ignis__inbox_remove(connection);
        ignis__connection_set_authenticated(connection);
        return true;
    }
    *again = !is_authenticated;
    if (!is_authenticated)
        return ignis__peer_error_set(
            error, IGNIS_DIAG_CHANNEL_MESSAGE, "the server at %s did not prove that it has our token%s%.*s",
            connection->path, header.size ? ": " : "", header.size < 100 ? (int)header.size : 100, (const char *)body);
    return ignis__peer_error_set(error, IGNIS_DIAG_CHANNEL_MESSAGE, "the server at %s refused the connection%s%.*s",
                                 connection->path, header.size ? ": " : "", header.size < 256 ? (int)header.size : 256,
                                 (const char *)body);
}

/*  Connects to the listener that is, or will be, at a path. NULL, with the error set, if the deadline
    passes. */
IGNIS__COLD IGNIS__PRIVATE ignis__connection *ignis__connection_open(ignis__peer_error *error,
                                                                     const ignis__client *client,
                                                                     const ignis__deadline *until)
{
    ignis__peer_error last_answer = IGNIS__ZERO; /* of a server that has not authenticated */
    int attempt;
    bool warned = false;
    for (attempt = 0;; attempt++) {
        ignis__connection *connection = ignis__connection_create(error, client->kind, client->path);
        bool again = false, stranger;
        if (!connection)
            return NULL;
        connection->attempt = attempt;
        if (client->kind->connect(error, connection, &again) &&
            ignis__connection_authenticate(error, connection, client, until, &again) &&
            ignis__connection_reserve(error, connection, client->capacity))
            return connection;
        ignis__connection_destroy(connection);
        if (!again && warned && error->diagnostic == IGNIS_DIAG_CHANNEL_TIMEOUT)
            ignis__peer_error_set(error, IGNIS_DIAG_CHANNEL_TIMEOUT,
                                  "no server accepted the connection before the deadline: %.220s", last_answer.why);
        if (!again)
            return NULL;
        if (ignis__deadline_slice_ms(until, 1) == 0) {
            ignis__peer_error last = *error;
            ignis__peer_error_set(error, IGNIS_DIAG_CHANNEL_TIMEOUT,
                                  "no server accepted the connection before the deadline: %.220s", last.why);
            return NULL;
        }
        stranger = client->secret && error->diagnostic == IGNIS_DIAG_CHANNEL_MESSAGE;
        last_answer = stranger ? *error : last_answer;
        if (stranger && !warned)
            ignis__log(IGNIS_LOG_WARNING, IGNIS_DIAG_CHANNEL_MESSAGE, "%s; retrying until the deadline", error->why);
        warned = warned || stranger;
        ignis__sleep_us(stranger ? 100000 : 5000);
    }
}

#ifndef _WIN32

/*  >>peer.socket_posix - Unix sockets, and functions that the TCP sockets of jobs share

    Implements the kind ignis__connection_socket: packets, or a stream, over a socket at a path.
    Uses: connections, listeners.
    Invariants: descriptors that arrive are closed on exec; a refused message leaves none open.
    Locks: none of its own. */

/*  Control data for the descriptors of one message. */
typedef union ignis__fd_control {
    struct cmsghdr align;
    char space[CMSG_SPACE(IGNIS_CHANNEL_MAX_FDS * sizeof(int))];
} ignis__fd_control;

IGNIS__PRIVATE int64_t ignis__socket_write(ignis__peer_error *error, ignis__connection *connection)
{
    struct iovec part;
    struct msghdr message;
    ignis__fd_control room;
    size_t bytes = (size_t)connection->outbox_fd_count * sizeof(int);
    ssize_t sent;
    memset(&message, 0, sizeof message);
    memset(&room, 0, sizeof room);
    part.iov_base = connection->outbox + connection->outbox_done;
    part.iov_len = connection->outbox_size - connection->outbox_done;
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    if (bytes > 0) {
        struct cmsghdr *control;
        message.msg_control = room.space;
        message.msg_controllen = CMSG_SPACE(bytes);
        control = CMSG_FIRSTHDR(&message);
        control->cmsg_level = SOL_SOCKET;
        control->cmsg_type = SCM_RIGHTS;
        control->cmsg_len = CMSG_LEN(bytes);
        memcpy(CMSG_DATA(control), connection->outbox_fds, bytes);
    }
    sent = sendmsg(connection->out, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent >= 0)
        return sent;
    if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)
        return 0;
    ignis__peer_error_set_errno(error, "sendmsg");
    return -1;
}

/*  Reads one packet with up to IGNIS_CHANNEL_MAX_FDS descriptors, or bytes of a stream. On failure no
    descriptor stays open. */
IGNIS__PRIVATE int64_t ignis__socket_read(ignis__peer_error *error, ignis__connection *connection, void *data,
                                          size_t capacity)
{
    struct iovec part;
    struct msghdr message;
    struct cmsghdr *control;
    ignis__fd_control room;
    ssize_t got;
    int count = 0, tries = 0;
    do { /* a peer that closed with unread messages shows an error first; its last messages come after it */
        memset(&message, 0, sizeof message);
        part.iov_base = data;
        part.iov_len = capacity;
        message.msg_iov = &part;
        message.msg_iovlen = 1;
        message.msg_control = room.space;
        message.msg_controllen = sizeof room.space;
        got = recvmsg(connection->in, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    } while (got < 0 && errno == ECONNRESET && tries++ == 0);
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR))
        return 0;
    if (got < 0) {
        ignis__peer_error_set_errno(error, "recvmsg");
        return -1;
    }
    for (control = CMSG_FIRSTHDR(&message); control; control = CMSG_NXTHDR(&message, control)) {
        size_t bytes = control->cmsg_len - CMSG_LEN(0);
        if (control->cmsg_level != SOL_SOCKET || control->cmsg_type != SCM_RIGHTS)
            continue;
        /* all of them fit if the control data fits */
        memcpy(connection->inbox_fds + count, CMSG_DATA(control), bytes);
        count += (int)(bytes / sizeof(int));
    }
    if (got > 0 && !(message.msg_flags & (MSG_TRUNC | MSG_CTRUNC))) {
        connection->inbox_fd_count = count;
        return got;
    }
    ignis__fds_close(connection->inbox_fds, count);
    if (message.msg_flags & MSG_CTRUNC)
        ignis__peer_error_set(
            error, IGNIS_DIAG_CHANNEL_MESSAGE,
            "a message lost descriptors: it has more than %d, or this process has reached its limit of open files",
            IGNIS_CHANNEL_MAX_FDS);
    else if (got > 0)
        ignis__peer_error_set(error, IGNIS_DIAG_CHANNEL_MESSAGE, "a message exceeds %lld bytes", (long long)capacity);
    else
        ignis__peer_error_set_lost(error);
    return -1;
}

IGNIS__PRIVATE bool ignis__socket_wait(ignis__peer_error *error, ignis__connection *connection, bool to_write,
                                       const ignis__deadline *until, const char *what)
{
    return ignis__fd_wait(error, to_write ? connection->out : connection->in, to_write ? POLLOUT : POLLIN, until, what);
}

/*  Asks the end that shows a hang-up of the peer: the one that this side writes to. */
IGNIS__PRIVATE bool ignis__socket_alive(ignis__connection *connection)
{
    int events = ignis__fd_poll(connection->out, POLLOUT, 0);
    return events >= 0 && !(events & IGNIS__POLL_ENDED);
}

IGNIS__PRIVATE void ignis__socket_shutdown(ignis__connection *connection) { (void)shutdown(connection->in, SHUT_RDWR); }

/*  Makes the address of a path. A path that is too long is reached through its folder, which stays open in
    *folder (else -1). */
static bool ignis__unix_address(ignis__peer_error *error, const char *path, struct sockaddr_un *address, int *folder)
{
    const char *slash = strrchr(path, '/');
    char parent[IGNIS__PATH_MAX];
    int length;
    memset(address, 0, sizeof *address);
    address->sun_family = AF_UNIX;
    *folder = -1;
    if (strlen(path) < sizeof address->sun_path) {
        memcpy(address->sun_path, path, strlen(path));
        return true;
    }
    length = slash ? (int)(slash - path) : 0;
    if (length == 0 || length >= (int)sizeof parent)
        return ignis__peer_error_set(error, IGNIS_DIAG_CHANNEL_IO, "a path of %d bytes exceeds the limit of a socket",
                                     (int)strlen(path));
    memcpy(parent, path, (size_t)length);
    parent[length] = 0;
    *folder = open(parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (*folder < 0)
        return ignis__peer_error_set_errno(error, parent);
    length = snprintf(address->sun_path, sizeof address->sun_path, "/proc/self/fd/%d", *folder);
    if (access(address->sun_path, F_OK) == 0 && (size_t)length + strlen(slash) < sizeof address->sun_path) {
        memcpy(address->sun_path + length, slash, strlen(slash) + 1);
        return true;
    }
    close(*folder);
    *folder = -1;
    return ignis__peer_error_set(
        error, IGNIS_DIAG_CHANNEL_IO,
        "the path of a socket has %d bytes at most, this one has %d; set IGNIS_COMM_DIR to a shorter folder",
        (int)sizeof address->sun_path - 1, (int)strlen(path));
}

/*  Binds or connects a socket to a path: the socket, or -1 with *os_error. */
static int ignis__unix_open(ignis__peer_error *error, const char *path, bool to_listen, int *os_error)
{
    struct sockaddr_un address;
    const struct sockaddr *to = (const struct sockaddr *)(const void *)&address;
    int folder, fd;
    bool ok;
    *os_error = 0;
    if (!ignis__unix_address(error, path, &address, &folder))
        return -1;
    fd = ignis__fd_register(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    do
        ok = fd >= 0 && (to_listen ? bind(fd, to, sizeof address) : connect(fd, to, sizeof address)) == 0;
    while (!ok && fd >= 0 && errno == EINTR);
    if (!ok) {
        *os_error = errno;
        ignis__peer_error_set_errno(error, path);
        ignis__peer_file_close(&fd);
    }
    if (folder >= 0)
        close(folder);
    return fd;
}

/*  Listens at a path. The owner of the name replaces the socket of a dead process. */
static bool ignis__socket_listen(ignis__peer_error *error, ignis__listener *listener)
{
    int os_error;
    (void)unlink(listener->path);
    listener->file = ignis__unix_open(error, listener->path, true, &os_error);
    listener->owns_path = listener->file >= 0;
    return listener->owns_path && ((chmod(listener->path, 0600) == 0 && listen(listener->file, 4096) == 0) ||
                                   ignis__peer_error_set_errno(error, "listen"));
}

/*  Reads the peer's process and user from the kernel: struct ucred, which strict standards hide. */
static bool ignis__connection_read_peer(ignis__connection *connection)
{
    struct {
        int pid;
        unsigned uid, gid;
    } peer;
    socklen_t size = sizeof peer;
    if (getsockopt(connection->in, SOL_SOCKET, IGNIS__SO_PEERCRED, &peer, &size) != 0 || size != sizeof peer)
        return false;
    connection->peer_pid = peer.pid;
    connection->peer_uid = (int64_t)peer.uid;
    return true;
}

IGNIS__PRIVATE bool ignis__socket_accept(ignis__peer_error *error, ignis__listener *listener, ignis__connection *fresh)
{
    do
        fresh->in = fresh->out = ignis__fd_register(accept4(listener->file, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK));
    while (fresh->in < 0 && (errno == EINTR || errno == ECONNABORTED));
    if (fresh->in < 0)
        return errno != EAGAIN && errno != EWOULDBLOCK && ignis__peer_error_set_errno(error, "accept");
    (void)ignis__connection_read_peer(fresh); /* unknown for a stream between hosts */
    return true;
}

static bool ignis__socket_connect(ignis__peer_error *error, ignis__connection *connection, bool *again)
{
    int os_error;
    connection->in = connection->out = ignis__unix_open(error, connection->path, false, &os_error);
    /* the server does not listen yet, or its queue is full */
    *again = connection->in < 0 && (os_error == ENOENT || os_error == ECONNREFUSED || os_error == EAGAIN);
    if (connection->in < 0)
        return false;
    if (ignis__connection_read_peer(connection) && connection->peer_uid == (int64_t)geteuid())
        return true;
    return ignis__peer_error_set(error, IGNIS_DIAG_CHANNEL_MESSAGE, "the server at %s belongs to another user",
                                 connection->path);
}

IGNIS__PRIVATE const ignis__connection_kind ignis__connection_socket = {IGNIS_CHANNEL_SOCKET,
                                                                        "sock",
                                                                        true,
                                                                        true,
                                                                        ignis__socket_listen,
                                                                        ignis__socket_accept,
                                                                        NULL,
                                                                        ignis__socket_connect,
                                                                        ignis__socket_write,
                                                                        ignis__socket_read,
                                                                        ignis__socket_wait,
                                                                        ignis__socket_alive,
                                                                        ignis__socket_shutdown,
                                                                        NULL,
                                                                        NULL,
                                                                        NULL};

#endif

/*  collective/channel - messages and descriptors between two processes. */

#define IGNIS__RING_BYTES (2 * (int)IGNIS_CHANNEL_MAX_BYTES)

#ifndef _WIN32
/*  The shared file. Side 0 is the server; each side writes its own ring. */
typedef struct ignis__shared {
    uint64_t magic;
    uint64_t unused[7];
    struct {
        uint64_t written; /* bytes that the side of the ring has written */
        uint64_t unused_a[7];
        uint64_t read; /* bytes that the peer has read */
        uint64_t unused_b[7];
    } ring[2];
    unsigned char bytes[2][IGNIS__RING_BYTES];
} ignis__shared;

#endif

/*  Paths, secret and kind of connection that follow from a description, equal on both sides. */
typedef struct ignis__endpoint {
    const ignis__connection_kind *kind;
    char path[IGNIS__PATH_MAX], name_path[IGNIS__PATH_MAX];
    unsigned char secret[IGNIS__SECRET]; /* desc.token */
    int64_t timeout_ns;
} ignis__endpoint;

/*  A channel: a connection that carries messages, or a listener. */
typedef struct ignis__channel {
    ignis__slot slot;
    ignis__connection *connection;
    ignis__listener *listener;
} ignis__channel;


/*  >>channel.method - bytes that pipes and rings hold

    Room for a whole message with its header in each direction.
    Uses: the limits of channel.h. Channels connect two processes of a machine and user; a kind of connection
    is chosen by ignis_channel_method. */


#ifndef _WIN32

/*  >>channel.fifo - channels by FIFOs (POSIX)

    Implements IGNIS_CHANNEL_PIPE. path.up carries what the client sends, path.down what the server sends.
    Uses: connections, listeners, POSIX.
    Invariants: a pair of FIFOs serves one client, and its names are removed when that has connected.
    Locks: the client locks the FIFO path.up. */

typedef struct ignis__fifo_paths {
    char up[IGNIS__PATH_MAX + 8], down[IGNIS__PATH_MAX + 8];
} ignis__fifo_paths;

static ignis__fifo_paths ignis__fifo_paths_of(const ignis__connection *connection)
{
    ignis__fifo_paths paths;
    snprintf(paths.up, sizeof paths.up, "%s.up", connection->path);
    snprintf(paths.down, sizeof paths.down, "%s.down", connection->path);
    return paths;
}

IGNIS__PRIVATE void ignis__pipe_remove(ignis__connection *connection)
{
    ignis__fifo_paths paths = ignis__fifo_paths_of(connection);
    (void)unlink(paths.up);
    (void)unlink(paths.down);
}

#define IGNIS__SET_PIPE_SIZE 1031 /* F_SETPIPE_SZ, which strict standards hide */

/*  Opens a FIFO that belongs to this user alone; -1 with errno on failure. */
static int ignis__pipe_open(const char *path, int mode)
{
    struct stat info;
    int fd = ignis__fd_register(open(path, mode | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC));
    if (fd >= 0 && (fstat(fd, &info) != 0 || !S_ISFIFO(info.st_mode) || !ignis__stat_is_ours(&info))) {
        ignis__peer_file_close(&fd);
        errno = EACCES;
    }
    if (fd >= 0)
        /* for a whole message, if the system allows it */
        (void)fcntl(fd, IGNIS__SET_PIPE_SIZE, IGNIS__RING_BYTES);
    return fd;
}

IGNIS__PRIVATE bool ignis__pipe_accept(ignis__peer_error *error, ignis__listener *listener, ignis__connection *fresh)
{
    ignis__fifo_paths paths = ignis__fifo_paths_of(fresh);
    if (listener->pending_count > 0)
        return false;
    ignis__pipe_remove(fresh); /* left by a dead server; the lock of the name excludes another one */
    fresh->owns_path = true;
    fresh->peer_uid = (int64_t)geteuid(); /* other users cannot open them */
    return (mkfifo(paths.down, 0600) == 0 && mkfifo(paths.up, 0600) == 0 &&
            (fresh->in = ignis__pipe_open(paths.up, O_RDONLY)) >= 0) ||
           ignis__peer_error_set_errno(error, paths.up);
}

IGNIS__PRIVATE bool ignis__pipe_connected(ignis__connection *fresh)
{
    if (fresh->out < 0)
        /* only succeeds while a reader has it open */
        fresh->out = ignis__pipe_open(ignis__fifo_paths_of(fresh).down, O_WRONLY);
    return fresh->out >= 0;
}

IGNIS__PRIVATE bool ignis__pipe_connect(ignis__peer_error *error, ignis__connection *connection, bool *again)
{
    ignis__fifo_paths paths = ignis__fifo_paths_of(connection);
    struct stat info, now;
    connection->out = ignis__pipe_open(paths.up, O_WRONLY);
    *again = connection->out >= 0 || errno == ENOENT || errno == ENXIO;
    if (connection->out < 0)
        return ignis__peer_error_set_errno(error, paths.up);
    /* one client a pair: it locks path.up; then the pair must still have the name */
    if (flock(connection->out, LOCK_EX | LOCK_NB) != 0)
        return ignis__peer_error_set(error, IGNIS_DIAG_CHANNEL_IO, "another client is being accepted");
    connection->in = ignis__pipe_open(paths.down, O_RDONLY);
    if (connection->in < 0 || fstat(connection->out, &info) != 0 || lstat(paths.up, &now) != 0 ||
        now.st_ino != info.st_ino)
        return ignis__peer_error_set(error, IGNIS_DIAG_CHANNEL_IO, "the server is replacing its pipes");
    connection->peer_uid = (int64_t)info.st_uid;
    return true;
}

/*  Writes without SIGPIPE, which a FIFO without a reader raises. */
IGNIS__PRIVATE int64_t ignis__pipe_write(ignis__peer_error *error, ignis__connection *connection)
{
    static const struct timespec no_time = {0, 0};
    sigset_t pipe_signal, before, pending;
    ssize_t written;
    int os_error;
    if (!connection->kind->connected(connection)) {
        ignis__peer_error_set_lost(error);
        return -1;
    }
    sigemptyset(&pipe_signal);
    sigaddset(&pipe_signal, SIGPIPE);
    sigemptyset(&pending);
    (void)sigpending(&pending);
    (void)pthread_sigmask(SIG_BLOCK, &pipe_signal, &before);
    written = write(connection->out, connection->outbox + connection->outbox_done,
                    connection->outbox_size - connection->outbox_done);
    os_error = errno;
    if (written < 0 && os_error == EPIPE && !sigismember(&pending, SIGPIPE))
        while (sigtimedwait(&pipe_signal, NULL, &no_time) < 0 && errno == EINTR)
            ;
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    errno = os_error;
    if (written < 0 && os_error != EAGAIN && os_error != EINTR) {
        ignis__peer_error_set_errno(error, "write");
        return -1;
    }
    return written < 0 ? 0 : written;
}

/*  Polls before reading: read returns 0 for a FIFO that no writer has opened yet, and also for one that was
    closed. */
IGNIS__PRIVATE int64_t ignis__pipe_read(ignis__peer_error *error, ignis__connection *connection, void *data,
                                        size_t size)
{
    ssize_t got;
    if (ignis__fd_poll(connection->in, POLLIN, 0) <= 0)
        return 0;
    got = read(connection->in, data, size);
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return 0;
    if (got < 0)
        ignis__peer_error_set_errno(error, "read");
    else if (got == 0)
        ignis__peer_error_set_lost(error);
    return got > 0 ? got : -1;
}

/*  >>channel.shared_ring - channels by shared memory (POSIX)

    Implements IGNIS_CHANNEL_SHM: two rings in a sealed file without a name; a link in the folder leads to it
    (/proc/<pid>/fd/<number>).
    Uses: connections, listeners, memfd.
    Invariants: a file serves one client, then the link is removed; a side never trusts the counters of the
    peer.
    Locks: each side locks its byte of the file; the system releases the locks of the dead, which tells the
    peer. */

#ifdef F_OFD_SETLK
#define IGNIS__LOCK_GET F_OFD_GETLK
#define IGNIS__LOCK_SET F_OFD_SETLK
#else /* Linux has them; strict standards hide them */
#define IGNIS__LOCK_GET 36
#define IGNIS__LOCK_SET 37
#endif

/*  Locks (F_WRLCK) or unlocks (F_UNLCK) the byte of a side; with `taken`, tells if another process has it. */
static bool ignis__shm_lock(const ignis__connection *connection, int side, short how, bool *taken)
{
    struct flock lock;
    int result;
    memset(&lock, 0, sizeof lock);
    lock.l_type = how;
    lock.l_whence = SEEK_SET;
    lock.l_start = side;
    lock.l_len = 1;
    result = fcntl(connection->shared_file, taken ? IGNIS__LOCK_GET : IGNIS__LOCK_SET, &lock);
    if (taken)
        *taken = result == 0 && lock.l_type != F_UNLCK;
    return result == 0;
}

static bool ignis__shm_alive(ignis__connection *connection)
{
    bool taken = false;
    (void)ignis__shm_lock(connection, 1 - connection->side, F_WRLCK, &taken);
    return taken;
}

static void ignis__shm_remove(ignis__connection *connection) { (void)unlink(connection->path); }

static bool ignis__shm_map(ignis__peer_error *error, ignis__connection *connection, int side)
{
    struct stat info;
    connection->side = side;
    if (fstat(connection->shared_file, &info) == 0 && ignis__stat_is_ours(&info)) {
        connection->peer_uid = (int64_t)info.st_uid;
        connection->shared_bytes = sizeof(ignis__shared);
        connection->shared = (ignis__shared *)ignis__shared_map(connection->shared_file, connection->shared_bytes);
    }
    return connection->shared || ignis__peer_error_set(error, IGNIS_DIAG_CHANNEL_IO,
                                                       "%s must lead to shared memory of this user", connection->path);
}

/*  The link gets its name when its target is complete. */
static bool ignis__shm_accept(ignis__peer_error *error, ignis__listener *listener, ignis__connection *fresh)
{
    char fresh_path[IGNIS__PATH_MAX], target[64];
    if (listener->pending_count > 0)
        return false;
    if (snprintf(fresh_path, sizeof fresh_path, "%s.new", fresh->path) >= (int)sizeof fresh_path)
        return ignis__peer_error_set(error, IGNIS_DIAG_CHANNEL_IO, "the path of the link exceeds %d bytes",
                                     IGNIS__PATH_MAX - 1);
    fresh->shared_file = ignis__fd_register(ignis__shared_make(sizeof(ignis__shared)));
    if (fresh->shared_file < 0 || !ignis__shm_lock(fresh, 0, F_WRLCK, NULL))
        return ignis__peer_error_set_errno(error, "shared memory");
    if (!ignis__shm_map(error, fresh, 0))
        return false;
    ignis__atomic_store(&fresh->shared->magic, IGNIS__MESSAGE_MAGIC);
    snprintf(target, sizeof target, "/proc/%lu/fd/%d", ignis__process_id(), fresh->shared_file);
    (void)unlink(fresh_path); /* left by a dead server; the lock of the name excludes another one */
    fresh->owns_path = symlink(target, fresh_path) == 0 && rename(fresh_path, fresh->path) == 0;
    return fresh->owns_path || ignis__peer_error_set_errno(error, fresh->path);
}

static bool ignis__shm_connect(ignis__peer_error *error, ignis__connection *connection, bool *again)
{
    struct stat info, now;
    connection->shared_file = ignis__fd_register(open(connection->path, O_RDWR | O_NONBLOCK | O_CLOEXEC));
    *again = connection->shared_file >= 0 || errno == ENOENT;
    if (connection->shared_file < 0)
        return ignis__peer_error_set_errno(error, connection->path);
    if (!ignis__shm_map(error, connection, 1))
        return false;
    if (!ignis__shm_lock(connection, 1, F_WRLCK, NULL))
        return ignis__peer_error_set(error, IGNIS_DIAG_CHANNEL_IO, "another client is being accepted");
    if (fstat(connection->shared_file, &info) != 0 || stat(connection->path, &now) != 0 || now.st_ino != info.st_ino)
        return ignis__peer_error_set(error, IGNIS_DIAG_CHANNEL_IO, "the server is replacing its memory");
    if (ignis__atomic_load(&connection->shared->magic) != IGNIS__MESSAGE_MAGIC || !ignis__shm_alive(connection))
        return ignis__peer_error_set(error, IGNIS_DIAG_CHANNEL_IO, "the server of %s has died", connection->path);
    if (ignis__atomic_load(&connection->shared->ring[1].written))
        return ignis__peer_error_set(error, IGNIS_DIAG_CHANNEL_IO,
                                     "the server has not yet replaced the memory of a client that has left");
    return true;
}

/*  Returns the bytes that can be read or written now; -1, with the error set, if the counters are invalid. */
static int64_t ignis__shm_available(ignis__peer_error *error, const ignis__connection *connection, bool to_write)
{
    int ring = to_write ? connection->side : 1 - connection->side;
    uint64_t used = ignis__atomic_load(&connection->shared->ring[ring].written) -
                    ignis__atomic_load(&connection->shared->ring[ring].read);
    if (used <= (uint64_t)IGNIS__RING_BYTES)
        return to_write ? IGNIS__RING_BYTES - (int64_t)used : (int64_t)used;
    ignis__peer_error_set(error, IGNIS_DIAG_CHANNEL_MESSAGE, "the counters of the shared memory are invalid");
    return -1;
}

/*  Copies into or out of a ring, across its end. */
static void ignis__shm_copy(unsigned char *ring, uint64_t at, void *data, size_t size, bool into)
{
    size_t begin = (size_t)(at % (uint64_t)IGNIS__RING_BYTES), first = (size_t)IGNIS__RING_BYTES - begin;
    unsigned char *bytes = (unsigned char *)data;
    first = first < size ? first : size;
    if (into) {
        memcpy(ring + begin, bytes, first);
        memcpy(ring, bytes + first, size - first);
    } else {
        memcpy(bytes, ring + begin, first);
        memcpy(bytes + first, ring, size - first);
    }
}

/*  Writes the whole outbox or nothing. */
static int64_t ignis__shm_write(ignis__peer_error *error, ignis__connection *connection)
{
    uint64_t *written = &connection->shared->ring[connection->side].written, at = ignis__atomic_load(written);
    int64_t room = ignis__shm_available(error, connection, true);
    if (!ignis__shm_alive(connection)) {
        ignis__peer_error_set_lost(error);
        return -1;
    }
    if (room < (int64_t)connection->outbox_size)
        return room < 0 ? -1 : 0;
    ignis__shm_copy(connection->shared->bytes[connection->side], at, connection->outbox, connection->outbox_size, true);
    ignis__atomic_store(written, at + connection->outbox_size);
    return (int64_t)connection->outbox_size;
}

static int64_t ignis__shm_read(ignis__peer_error *error, ignis__connection *connection, void *data, size_t size)
{
    uint64_t *read_so_far = &connection->shared->ring[1 - connection->side].read, at = ignis__atomic_load(read_so_far);
    int64_t room = ignis__shm_available(error, connection, false);
    if (room == 0) { /* it may write before it leaves, and may not have come yet */
        bool lives = ignis__shm_alive(connection);
        connection->peer_seen |= lives;
        room = ignis__shm_available(error, connection, false);
        if (room == 0 && !lives && connection->peer_seen) {
            ignis__peer_error_set_lost(error);
            return -1;
        }
    }
    if (room <= 0)
        return room;
    connection->peer_seen = true;
    if ((int64_t)size > room)
        size = (size_t)room;
    ignis__shm_copy(connection->shared->bytes[1 - connection->side], at, data, size, false);
    ignis__atomic_store(read_so_far, at + size);
    return (int64_t)size;
}

/*  Polls shared memory, which cannot wake a waiter; less often with time. */
static bool ignis__shm_wait(ignis__peer_error *error, ignis__connection *connection, bool to_write,
                            const ignis__deadline *until, const char *what)
{
    int *pause_us = &connection->pause_us[to_write];
    if (ignis__deadline_slice_ms(until, 1) == 0)
        return ignis__peer_error_set_timeout(error, until, what);
    if (*pause_us > 0)
        ignis__sleep_us(*pause_us);
    *pause_us = *pause_us < 1000 ? *pause_us + 20 : 1000;
    return true;
}

static void ignis__shm_shutdown(ignis__connection *connection)
{
    (void)ignis__shm_lock(connection, connection->side, F_UNLCK, NULL);
}

IGNIS__PRIVATE const ignis__connection_kind ignis__connection_pipe = {IGNIS_CHANNEL_PIPE,
                                                                      "pipe",
                                                                      false,
                                                                      false,
                                                                      NULL,
                                                                      ignis__pipe_accept,
                                                                      ignis__pipe_connected,
                                                                      ignis__pipe_connect,
                                                                      ignis__pipe_write,
                                                                      ignis__pipe_read,
                                                                      ignis__socket_wait,
                                                                      ignis__socket_alive,
                                                                      NULL,
                                                                      ignis__pipe_remove,
                                                                      NULL,
                                                                      NULL};
IGNIS__PRIVATE const ignis__connection_kind ignis__connection_memory = {IGNIS_CHANNEL_SHM,
                                                                        "shm",
                                                                        false,
                                                                        false,
                                                                        NULL,
                                                                        ignis__shm_accept,
                                                                        ignis__shm_alive,
                                                                        ignis__shm_connect,
                                                                        ignis__shm_write,
                                                                        ignis__shm_read,
                                                                        ignis__shm_wait,
                                                                        ignis__shm_alive,
                                                                        ignis__shm_shutdown,
                                                                        ignis__shm_remove,
                                                                        NULL,
                                                                        NULL};
/*  Kinds of connections, by ignis_channel_method. */
IGNIS__PRIVATE const ignis__connection_kind *const ignis__connection_kinds[] = {
    &ignis__connection_socket, &ignis__connection_socket, &ignis__connection_pipe, &ignis__connection_memory};

#else /* Windows */

/*  >>channel.named_pipe - channels by a named pipe (Windows)

    Implements IGNIS_CHANNEL_PIPE: one pipe instance a client, without blocking; a waiter polls every
    millisecond. The name is random, since any process can create a pipe of any name. Clients know it or read
    it from the file of the name.
    Uses: connections, listeners, Windows.
    Invariants: only this user can open the pipe.
    Locks: none of its own. */

static bool ignis__pipe_error_set(ignis__peer_error *error, const char *what)
{
    DWORD os_error = GetLastError();
    if (os_error == ERROR_BROKEN_PIPE || os_error == ERROR_PIPE_NOT_CONNECTED || os_error == ERROR_NO_DATA)
        return ignis__peer_error_set_lost(error);
    return ignis__peer_error_set(error, IGNIS_DIAG_CHANNEL_IO, "%s: Windows error %lu", what, os_error);
}

static const char ignis__pipe_prefix[] = "\\\\.\\pipe\\ignis-"; /* of this machine */
IGNIS__PRIVATE void ignis__pipe_path(char path[IGNIS__PATH_MAX], uint64_t place)
{
    snprintf(path, IGNIS__PATH_MAX, "%s%016llx", ignis__pipe_prefix, (unsigned long long)place);
}
static bool ignis__pipe_path_valid(const char *path)
{
    return strncmp(path, ignis__pipe_prefix, sizeof ignis__pipe_prefix - 1) != 0;
}

static bool ignis__pipe_listen(ignis__peer_error *error, ignis__listener *listener)
{
    (void)error;
    if (ignis__pipe_path_valid(listener->path))
        ignis__pipe_path(listener->path, listener->place);
    return true;
}

IGNIS__PRIVATE bool ignis__pipe_accept(ignis__peer_error *error, ignis__listener *listener, ignis__connection *fresh)
{
    SECURITY_ATTRIBUTES security;
    if (listener->pending_count > 0 && listener->pending[listener->pending_count - 1].since_ns == 0)
        return false; /* no client has connected to the latest one yet */
    security.nLength = (DWORD)sizeof security;
    security.bInheritHandle = FALSE;
    security.lpSecurityDescriptor = ignis__security_descriptor();
    if (!security.lpSecurityDescriptor)
        return ignis__pipe_error_set(error, "the user's security descriptor");
    fresh->in = fresh->out = CreateNamedPipeA(
        fresh->path, PIPE_ACCESS_DUPLEX | (listener->arrivals == 0 ? FILE_FLAG_FIRST_PIPE_INSTANCE : 0),
        PIPE_TYPE_BYTE | PIPE_READMODE_BYTE | PIPE_NOWAIT | PIPE_REJECT_REMOTE_CLIENTS, PIPE_UNLIMITED_INSTANCES,
        IGNIS__RING_BYTES, IGNIS__RING_BYTES, 0, &security);
    return fresh->in != IGNIS__NO_FILE || ignis__pipe_error_set(error, fresh->path);
}

IGNIS__PRIVATE bool ignis__pipe_connected(ignis__connection *fresh)
{
    ULONG pid = 0;
    if (ConnectNamedPipe(fresh->in, NULL) ||
        (GetLastError() != ERROR_PIPE_CONNECTED && GetLastError() != ERROR_NO_DATA))
        return false;
    if (GetNamedPipeClientProcessId(fresh->in, &pid))
        fresh->peer_pid = (int64_t)pid;
    return true;
}

IGNIS__PRIVATE bool ignis__pipe_connect(ignis__peer_error *error, ignis__connection *connection, bool *again)
{
    DWORD mode = PIPE_READMODE_BYTE | PIPE_NOWAIT;
    ULONG pid = 0;
    ignis__name_record record;
    if (ignis__pipe_path_valid(connection->path)) {
        *again = !ignis__name_file_read(connection->path, &record, sizeof record);
        if (*again)
            return ignis__peer_error_set(error, IGNIS_DIAG_CHANNEL_IO, "no server in %s", connection->path);
        ignis__pipe_path(connection->path, record.place);
    }
    connection->in = connection->out =
        CreateFileA(connection->path, GENERIC_READ | GENERIC_WRITE, 0, NULL, OPEN_EXISTING,
                    SECURITY_SQOS_PRESENT | SECURITY_IDENTIFICATION, NULL);
    *again =
        connection->in != IGNIS__NO_FILE || GetLastError() == ERROR_FILE_NOT_FOUND || GetLastError() == ERROR_PIPE_BUSY;
    if (connection->in == IGNIS__NO_FILE || !SetNamedPipeHandleState(connection->in, &mode, NULL, NULL) ||
        !GetNamedPipeServerProcessId(connection->in, &pid))
        return ignis__pipe_error_set(error, connection->path);
    connection->peer_pid = (int64_t)pid;
    return true;
}

IGNIS__PRIVATE int64_t ignis__pipe_write(ignis__peer_error *error, ignis__connection *connection)
{
    DWORD written = 0;
    if (WriteFile(connection->out, connection->outbox + connection->outbox_done,
                  (DWORD)(connection->outbox_size - connection->outbox_done), &written, NULL))
        return (int64_t)written;
    ignis__pipe_error_set(error, "WriteFile");
    return -1;
}

IGNIS__PRIVATE int64_t ignis__pipe_read(ignis__peer_error *error, ignis__connection *connection, void *data,
                                        size_t size)
{
    DWORD got = 0, available = 0;
    if (PeekNamedPipe(connection->in, NULL, 0, NULL, &available, NULL) ? available == 0
                                                                       : GetLastError() != ERROR_BROKEN_PIPE)
        return 0; /* no bytes, or no client yet */
    if (ReadFile(connection->in, data, (DWORD)size, &got, NULL) || GetLastError() == ERROR_NO_DATA)
        return (int64_t)got;
    ignis__pipe_error_set(error, "ReadFile");
    return -1;
}

static bool ignis__pipe_wait(ignis__peer_error *error, ignis__connection *connection, bool to_write,
                             const ignis__deadline *until, const char *what)
{
    (void)connection, (void)to_write;
    if (ignis__deadline_slice_ms(until, 1) == 0)
        return ignis__peer_error_set_timeout(error, until, what);
    ignis__sleep_us(1000);
    return true;
}

static bool ignis__pipe_alive(ignis__connection *connection)
{
    bool ended = connection->process != IGNIS__NO_FILE && WaitForSingleObject(connection->process, 0) == WAIT_OBJECT_0;
    return !ended && PeekNamedPipe(connection->in, NULL, 0, NULL, NULL, NULL) != 0;
}

static void ignis__pipe_close_duplicates(const ignis__connection *connection, const uint64_t *numbers, int count)
{
    while (count > 0)
        DuplicateHandle(connection->process, (HANDLE)(uintptr_t)numbers[--count], NULL, NULL, 0, FALSE,
                        DUPLICATE_CLOSE_SOURCE);
}

static bool ignis__pipe_duplicate_handles(ignis__peer_error *error, const ignis__connection *connection, const int *fds,
                                          int count, uint64_t *numbers)
{
    HANDLE made;
    int i;
    if (connection->process == IGNIS__NO_FILE) /* the invalid handle is also the pseudo handle of this process */
        return ignis__peer_error_set(error, IGNIS_DIAG_CHANNEL_IO,
                                     "process %lld does not allow handles to be duplicated into it",
                                     (long long)connection->peer_pid);
    for (i = 0; i < count; i++) {
        if (!DuplicateHandle(GetCurrentProcess(), ignis__fd_handle(fds[i]), connection->process, &made, 0, FALSE,
                             DUPLICATE_SAME_ACCESS)) {
            DWORD os_error = GetLastError();
            ignis__pipe_close_duplicates(connection, numbers, i);
            if (WaitForSingleObject(connection->process, 0) == WAIT_OBJECT_0)
                return ignis__peer_error_set_lost(error);
            return ignis__peer_error_set(error, IGNIS_DIAG_CHANNEL_IO,
                                         "a handle cannot be duplicated into process %lld: Windows error %lu",
                                         (long long)connection->peer_pid, os_error);
        }
        numbers[i] = (uint64_t)(uintptr_t)made;
    }
    return true;
}

IGNIS__PRIVATE const ignis__connection_kind ignis__connection_pipe = {IGNIS_CHANNEL_PIPE,
                                                                      "pipe",
                                                                      false,
                                                                      true,
                                                                      ignis__pipe_listen,
                                                                      ignis__pipe_accept,
                                                                      ignis__pipe_connected,
                                                                      ignis__pipe_connect,
                                                                      ignis__pipe_write,
                                                                      ignis__pipe_read,
                                                                      ignis__pipe_wait,
                                                                      ignis__pipe_alive,
                                                                      NULL,
                                                                      NULL,
                                                                      ignis__pipe_duplicate_handles,
                                                                      ignis__pipe_close_duplicates};
IGNIS__PRIVATE const ignis__connection_kind *const ignis__connection_kinds[] = {&ignis__connection_pipe, NULL,
                                                                                &ignis__connection_pipe, NULL};

#endif

/*  >>channel - channels: messages between two processes

    The public functions of channels: serve, connect, accept, send, receive.
    Uses: connections and listeners of the peer room.
    Invariants: a channel is a connection or a listener, never both; a failure that leaves the peers out of
    step ends the connection.
    Locks: the slot; send_lock and receive_lock of the connection, listener->lock; none is held while another
    one is taken. */

IGNIS__PRIVATE const char *const ignis__method_names[] = {"default", "socket", "pipe", "shared memory"};

static int64_t ignis__timeout_ns(double timeout_s)
{
    return timeout_s > 1e9 ? INT64_MAX / 4 : (int64_t)(timeout_s * 1e9);
}

/*  Checks that a name can be part of a path. */
static bool ignis__name_valid(const char *name)
{
    size_t length = strlen(name);
    return length >= 1 && length <= 63 && *name != '.' &&
           strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") == length;
}

/*  Takes a lock. False, with the error set, if the deadline passes. */
static bool ignis__mutex_lock_until(ignis__peer_error *error, ignis__mutex *mutex, const ignis__deadline *until,
                                    const char *what)
{
    while (!ignis__mutex_try(mutex)) {
        if (ignis__deadline_slice_ms(until, 1) == 0)
            return ignis__peer_error_set_timeout(error, until, what);
        ignis__sleep_us(50);
    }
    return true;
}

/*  Finds the path of the server of a name, and of the file with its secret. */
IGNIS__PRIVATE bool ignis__endpoint_set_paths(const char *call, char folder[IGNIS__PATH_MAX], const char *name,
                                              ignis__endpoint *address)
{
    int length, name_length;
    if (!ignis__private_folder(call, folder, IGNIS__PATH_MAX))
        return false;
    name_length =
        snprintf(address->name_path, sizeof address->name_path, "%s/%s.%s-name", folder, name, address->kind->suffix);
#ifdef _WIN32 /* the path to connect to is in that file */
    length = snprintf(address->path, sizeof address->path, "%s", address->name_path);
#else
    length = snprintf(address->path, sizeof address->path, "%s/%s.%s", folder, name, address->kind->suffix);
#endif
    if (length >= 0 && (size_t)length < sizeof address->path && name_length >= 0 &&
        (size_t)name_length < sizeof address->name_path)
        return true;
    return ignis__fail_false(IGNIS_DIAG_CHANNEL_IO, call, "a path in %.80s... exceeds %d bytes", folder,
                             IGNIS__PATH_MAX - 1);
}

static bool ignis__endpoint_read(const char *call, const ignis_channel_desc *desc, ignis__endpoint *address)
{
    char folder[IGNIS__PATH_MAX];
    int length;
    if (!ignis__collective_enter(call) || !ignis__check_not_null(call, "desc", desc) ||
        !ignis__check_not_null(call, "desc.name", desc->name))
        return false;
    if (!ignis__name_valid(desc->name))
        return ignis__fail_false(
            IGNIS_DIAG_BAD_NUMBER, call,
            "desc.name is '%.80s'; expected 1 to 63 letters, digits, '.', '_' or '-', the first not '.'", desc->name);
    if ((unsigned)desc->method >= IGNIS_CHANNEL_METHOD_COUNT)
        return ignis__fail_false(IGNIS_DIAG_BAD_ENUM, call,
                                 "desc.method is %d; expected a value of ignis_channel_method", (int)desc->method);
    if (!(desc->timeout_s >= 0))
        return ignis__fail_false(IGNIS_DIAG_BAD_NUMBER, call, "desc.timeout_s is %g; expected 0 or more",
                                 desc->timeout_s);
    memset(address, 0, sizeof *address);
    address->kind = ignis__connection_kinds[desc->method];
    if (!address->kind)
        return ignis__fail_false(IGNIS_DIAG_UNSUPPORTED, call, "channels by %s are not supported on this system",
                                 ignis__method_names[desc->method]);
    if (desc->token)
        memcpy(address->secret, desc->token, IGNIS_CHANNEL_TOKEN_BYTES);
    address->timeout_ns = desc->timeout_s == 0 ? 30000000000 : ignis__timeout_ns(desc->timeout_s);
    length = snprintf(folder, sizeof folder, "%s", desc->directory ? desc->directory : "");
    if (length < 0 || (size_t)length >= sizeof folder)
        return ignis__fail_false(IGNIS_DIAG_CHANNEL_IO, call, "desc.directory exceeds %d bytes",
                                 (int)sizeof folder - 1);
    return ignis__endpoint_set_paths(call, folder, desc->name, address);
}

IGNIS__PRIVATE ignis__pool ignis__channels =
    IGNIS__POOL(ignis__channel, IGNIS__KIND_CHANNEL, "channel", IGNIS_DIAG_CHANNEL_FREED);

/*  Closes a connection or listener that no thread uses, after a goodbye if the system takes it. */
static void ignis__channel_free(ignis__connection *connection, ignis__listener *listener)
{
    ignis__peer_error ignored;
    if (connection && !ignis__atomic_load(&connection->lost))
        (void)ignis__connection_send(&ignored, connection, IGNIS__MESSAGE_GOODBYE, NULL, 0, NULL, 0,
                                     &ignis__deadline_now);
    ignis__connection_destroy(connection);
    ignis__listener_free(listener);
}

IGNIS__PRIVATE void ignis__channel_drop(ignis__channel *channel)
{
    ignis__connection *connection = channel->connection;
    ignis__listener *listener = channel->listener;
    if (!ignis__pool_drop(channel))
        return;
    channel->connection = NULL;
    channel->listener = NULL;
    ignis__pool_recycle(&ignis__channels, channel);
    ignis__channel_free(connection, listener);
}

static bool ignis__channel_kill(ignis__channel *channel)
{
    if (!ignis__handle_kill(channel))
        return false;
    ignis__atomic_store(channel->connection ? &channel->connection->closing : &channel->listener->closing, 1);
    return true;
}

IGNIS__COLD static void ignis__channels_close(const char *call)
{
    ignis__channel *channel;
    uint64_t index = 0;
    while ((channel = (ignis__channel *)ignis__pool_next(&ignis__channels, &index)) != NULL) {
        ignis__leak_report(call, IGNIS_DIAG_HANDLE_LEAKED, "channel of the %s",
                           channel->listener ? "server" : "client");
        ignis__channel_kill(channel);
        ignis__channel_drop(channel);
    }
}

/*  Creates a handle for a connection or a listener; destroys it on failure. */
static ignis_channel ignis__channel_publish(const char *call, ignis__connection *connection, ignis__listener *listener)
{
    ignis_channel handle = IGNIS__ZERO;
    ignis__channel *channel = (ignis__channel *)ignis__pool_take(call, &ignis__channels);
    if (!channel) {
        ignis__channel_free(connection, listener);
        return handle;
    }
    ignis__section_use(IGNIS__SECTION_CHANNEL, ignis__channels_close);
    channel->connection = connection;
    channel->listener = listener;
    handle.id = ignis__pool_publish(&ignis__channels, channel);
    return handle;
}

IGNIS__PRIVATE ignis__channel *ignis__channel_hold(const char *call, ignis_channel handle)
{
    return (ignis__channel *)ignis__handle_hold(call, &ignis__channels, handle.id);
}

/*  Holds a channel that listens, or one that carries messages. */
IGNIS__ONE_COPY IGNIS__PRIVATE ignis__channel *ignis__channel_hold_as(const char *call, ignis_channel handle,
                                                                      bool server)
{
    ignis__channel *channel = ignis__channel_hold(call, handle);
    if (!channel || (channel->listener != NULL) == server)
        return channel;
    ignis__fail(IGNIS_DIAG_BAD_NUMBER, call,
                server ? "the channel does not listen; use one of ignis_channel_serve"
                       : "the channel only listens; use one of ignis_channel_accept");
    ignis__channel_drop(channel);
    return NULL;
}

IGNIS_API IGNIS__COLD ignis_channel ignis_channel_serve(const ignis_channel_desc *desc)
{
    static const char call[] = "ignis_channel_serve";
    ignis_channel none = IGNIS__ZERO;
    ignis__endpoint address;
    ignis__peer_error error;
    ignis__listener *listener;
    if (!ignis__endpoint_read(call, desc, &address))
        return none;
    if ((listener = ignis__listener_new(call, address.kind, address.path)) == NULL)
        return none;
    listener->timeout_ns = address.timeout_ns;
    if (ignis__listener_open(call, &error, listener, address.name_path, desc->token ? address.secret : NULL))
        return ignis__channel_publish(call, NULL, listener);
    ignis__channel_free(NULL, listener);
    ignis__peer_error_report(call, &error);
    return none;
}

/*  Returns the deadline of a call: timeout_s from now; if that is below 0, the timeout of the channel. */
static ignis__deadline ignis__channel_deadline(int64_t timeout_ns, const uint64_t *closing, double timeout_s)
{
    ignis__deadline until = ignis__deadline_in(timeout_s < 0 ? timeout_ns : ignis__timeout_ns(timeout_s));
    until.stop = closing;
    if (timeout_s == 0)
        until.deadline_ns = 0;
    return until;
}

static ignis_channel ignis__channel_accept(const char *call, ignis_channel handle, double timeout_s)
{
    ignis_channel accepted = IGNIS__ZERO;
    ignis__channel *channel = ignis__channel_hold_as(call, handle, true);
    ignis__peer_error error;
    ignis__deadline until;
    ignis__connection *connection = NULL;
    ignis__listener *listener;
    uint64_t pid = 0;
    if (!channel)
        return accepted;
    listener = channel->listener;
    until = ignis__channel_deadline(listener->timeout_ns, &listener->closing, timeout_s);
    if (ignis__mutex_lock_until(&error, &listener->lock, &until, "another thread was still accepting")) {
        while ((connection = ignis__listener_next(call, &error, listener, &until)) != NULL) {
            if (ignis__claim_read(&error, connection, &pid, sizeof pid) &&
                ignis__connection_welcome(&error, connection, IGNIS_CHANNEL_MAX_BYTES))
                break;
            ignis__listener_refuse(call, listener, connection, true, error.why);
        }
        ignis__mutex_unlock(&listener->lock);
    }
    if (connection) {
        connection->timeout_ns = listener->timeout_ns;
        if (connection->peer_pid == 0)
            connection->peer_pid = (int64_t)pid;
        accepted = ignis__channel_publish(call, connection, NULL);
    } else {
        ignis__peer_error_report(call, &error);
    }
    ignis__channel_drop(channel);
    return accepted;
}

IGNIS_API ignis_channel ignis_channel_accept(ignis_channel handle)
{
    return ignis__channel_accept("ignis_channel_accept", handle, -1);
}

IGNIS_API ignis_channel ignis_channel_accept_within(ignis_channel handle, double timeout_s)
{
    return ignis__channel_accept("ignis_channel_accept_within", handle, timeout_s);
}

IGNIS_API IGNIS__COLD ignis_channel ignis_channel_connect(const ignis_channel_desc *desc)
{
    static const char call[] = "ignis_channel_connect";
    ignis_channel none = IGNIS__ZERO;
    ignis__endpoint address;
    ignis__peer_error error;
    ignis__client client;
    ignis__deadline until;
    ignis__connection *connection;
    uint64_t pid = ignis__process_id();
    if (!ignis__endpoint_read(call, desc, &address))
        return none;
    until = ignis__deadline_in(address.timeout_ns);
    client.kind = address.kind;
    client.path = address.path;
    client.name_path = address.name_path;
    client.secret = desc->token ? address.secret : NULL;
    client.claim = &pid;
    client.claim_size = sizeof pid;
    client.capacity = IGNIS_CHANNEL_MAX_BYTES;
    connection = ignis__connection_open(&error, &client, &until);
    if (connection) {
        connection->timeout_ns = address.timeout_ns;
        return ignis__channel_publish(call, connection, NULL);
    }
    ignis__peer_error_report(call, &error);
    return none;
}

/*  Checks a message before anything is sent. */
static bool ignis__channel_send_check(const char *call, const ignis__connection *connection, const void *data,
                                      int64_t size, const int *fds, int fd_count)
{
    int i;
    if (size < 0 || size > IGNIS_CHANNEL_MAX_BYTES)
        return ignis__fail_false(IGNIS_DIAG_BAD_NUMBER, call, "size is %lld; expected 0 to %d bytes", (long long)size,
                                 IGNIS_CHANNEL_MAX_BYTES);
    if (fd_count < 0 || fd_count > IGNIS_CHANNEL_MAX_FDS)
        return ignis__fail_false(IGNIS_DIAG_BAD_NUMBER, call, "fd_count is %d; expected 0 to %d descriptors", fd_count,
                                 IGNIS_CHANNEL_MAX_FDS);
    if ((size > 0 && !ignis__check_not_null(call, "data", data)) ||
        (fd_count > 0 && !ignis__check_not_null(call, "fds", fds)))
        return false;
    if (fd_count > 0 && !connection->kind->descriptors)
        return ignis__fail_false(IGNIS_DIAG_CHANNEL_DESCRIPTOR, call,
                                 "a channel by %s cannot carry descriptors; use IGNIS_CHANNEL_SOCKET",
                                 ignis__method_names[connection->kind->method]);
    for (i = 0; i < fd_count; i++)
        if (!ignis__fd_is_open(fds[i]))
            return ignis__fail_false(IGNIS_DIAG_BAD_NUMBER, call, "fds[%d] is %d; expected an open descriptor", i,
                                     fds[i]);
    return true;
}

/*  Ends a connection after a failure that leaves the peers out of step. */
static void ignis__connection_end(ignis__connection *connection, const ignis__peer_error *error)
{
    if (error->diagnostic == IGNIS_DIAG_CHANNEL_TIMEOUT || error->diagnostic == IGNIS_DIAG_CHANNEL_FREED)
        return;
    if (!ignis__atomic_load(&connection->lost))
        ignis__atomic_store(&connection->lost, 1);
    if (connection->kind->shutdown)
        connection->kind->shutdown(connection);
}

/*  Sends one message of a type within timeout_s. False, with the error set, on failure. */
IGNIS__PRIVATE bool ignis__channel_send_message(ignis__peer_error *error, ignis__connection *connection, int type,
                                                const void *data, size_t size, const int *fds, int fd_count,
                                                double timeout_s)
{
    ignis__deadline until = ignis__channel_deadline(connection->timeout_ns, &connection->closing, timeout_s);
    bool ok;
    if (!ignis__mutex_lock_until(error, &connection->send_lock, &until, "another thread was still sending"))
        return false;
    ok = ignis__connection_check(error, connection) &&
         ignis__connection_send(error, connection, type, data, size, fds, fd_count, &until);
    /* what the peer sent before it closed can still be received */
    if (!ok && error->diagnostic != IGNIS_DIAG_CHANNEL_LOST)
        ignis__connection_end(connection, error);
    ignis__mutex_unlock(&connection->send_lock);
    return ok;
}

static ignis_status ignis__channel_send(const char *call, ignis_channel handle, const void *data, int64_t size,
                                        const int *fds, int fd_count, double timeout_s)
{
    ignis__channel *channel = ignis__channel_hold_as(call, handle, false);
    ignis_status status = IGNIS_OK;
    ignis__peer_error error;
    if (!channel)
        return ignis__failed();
    if (!ignis__channel_send_check(call, channel->connection, data, size, fds, fd_count))
        status = ignis__failed();
    else if (!ignis__channel_send_message(&error, channel->connection, IGNIS__MESSAGE_DATA, data, (size_t)size, fds,
                                          fd_count, timeout_s))
        status = ignis__peer_error_report(call, &error);
    ignis__channel_drop(channel);
    return status;
}

IGNIS_API ignis_status ignis_channel_send(ignis_channel handle, const void *data, int64_t size, const int *fds,
                                          int fd_count)
{
    return ignis__channel_send("ignis_channel_send", handle, data, size, fds, fd_count, -1);
}

IGNIS_API ignis_status ignis_channel_send_within(ignis_channel handle, const void *data, int64_t size, const int *fds,
                                                 int fd_count, double timeout_s)
{
    return ignis__channel_send("ignis_channel_send_within", handle, data, size, fds, fd_count, timeout_s);
}

/*  The caller's buffers for a message. */
typedef struct ignis__receive_buffer {
    void *data;
    int64_t capacity;
    int64_t *size; /* may be NULL, as fd_count */
    int *fds;
    int fd_capacity;
    int *fd_count;
} ignis__receive_buffer;

/*  Copies the message in the inbox to the caller, if his buffers are large enough. */
static ignis_status ignis__inbox_copy(const char *call, ignis__connection *connection,
                                      const ignis__receive_buffer *buffer)
{
    int64_t bytes = (int64_t)ignis__message_header_read(connection).size;
    int count = connection->inbox_fd_count;
    if (buffer->size)
        *buffer->size = bytes;
    if (buffer->fd_count)
        *buffer->fd_count = count;
    if (bytes > buffer->capacity || count > buffer->fd_capacity)
        return ignis__fail(IGNIS_DIAG_COUNT_MISMATCH, call,
                           "the message has %lld bytes and %d descriptors; the buffers take %lld and %d",
                           (long long)bytes, count, (long long)buffer->capacity, buffer->fd_capacity);
    if (bytes > 0)
        memcpy(buffer->data, connection->inbox + sizeof(ignis__message_header), (size_t)bytes);
    if (count > 0)
        memcpy(buffer->fds, connection->inbox_fds, (size_t)count * sizeof(int));
    connection->inbox_fd_count = 0; /* the caller owns them now */
    ignis__inbox_remove(connection);
    return IGNIS_OK;
}

/*  Sends bytes that a stream had not taken, unless another thread is sending. */
IGNIS__PRIVATE void ignis__connection_send_rest(ignis__connection *connection)
{
    ignis__peer_error ignored;
    if (!ignis__atomic_load(&connection->unsent) || !ignis__mutex_try(&connection->send_lock))
        return;
    (void)ignis__connection_flush(&ignored, connection, &ignis__deadline_now);
    ignis__mutex_unlock(&connection->send_lock);
}

/*  Receives the next message or array into the inbox. True: the caller holds the receive lock. */
IGNIS__PRIVATE bool ignis__connection_receive_next(ignis__peer_error *error, ignis__connection *connection,
                                                   double timeout_s)
{
    ignis__deadline until = ignis__channel_deadline(connection->timeout_ns, &connection->closing, timeout_s);
    int type;
    ignis__connection_send_rest(connection);
    if (!ignis__mutex_lock_until(error, &connection->receive_lock, &until, "another thread was still receiving"))
        return false;
    if (connection->inbox_is_complete)
        return true;
    if (ignis__connection_check(error, connection) && ignis__connection_receive(error, connection, &until)) {
        type = ignis__message_header_read(connection).type;
        if (type == IGNIS__MESSAGE_DATA || type == IGNIS__MESSAGE_ARRAY)
            return true;
        ignis__peer_error_set(error, IGNIS_DIAG_CHANNEL_MESSAGE, "a message of type %d came; expected data or an array",
                              type);
        if (type == IGNIS__MESSAGE_GOODBYE) {
            ignis__atomic_store(&connection->lost, 2);
            (void)ignis__connection_check(error, connection);
        }
    }
    if (error->diagnostic != IGNIS_DIAG_CHANNEL_TIMEOUT)
        ignis__inbox_clear(connection);
    ignis__connection_end(connection, error);
    ignis__mutex_unlock(&connection->receive_lock);
    return false;
}

static ignis_status ignis__channel_receive(const char *call, ignis_channel handle, const ignis__receive_buffer *buffer,
                                           double timeout_s)
{
    ignis__channel *channel = ignis__channel_hold_as(call, handle, false);
    ignis_status status;
    ignis__peer_error error;
    ignis__connection *connection;
    if (!channel)
        return ignis__failed();
    connection = channel->connection;
    if (buffer->capacity < 0 || buffer->fd_capacity < 0) {
        status = ignis__fail(IGNIS_DIAG_BAD_NUMBER, call, "capacity is %lld and fd_capacity %d; expected 0 or more",
                             (long long)buffer->capacity, buffer->fd_capacity);
    } else if ((buffer->capacity > 0 && !ignis__check_not_null(call, "data", buffer->data)) ||
               (buffer->fd_capacity > 0 && !ignis__check_not_null(call, "fds", buffer->fds))) {
        status = ignis__failed();
    } else if (!ignis__connection_receive_next(&error, connection, timeout_s)) {
        status = ignis__peer_error_report(call, &error);
    } else {
        if (ignis__message_header_read(connection).type != IGNIS__MESSAGE_DATA)
            status = ignis__fail(IGNIS_DIAG_BAD_NUMBER, call,
                                 "the next item is an array; receive it with ignis_share_receive");
        else
            status = ignis__inbox_copy(call, connection, buffer);
        ignis__mutex_unlock(&connection->receive_lock);
    }
    ignis__channel_drop(channel);
    return status;
}

IGNIS_API ignis_status ignis_channel_receive(ignis_channel handle, void *data, int64_t capacity, int64_t *size,
                                             int *fds, int fd_capacity, int *fd_count)
{
    const ignis__receive_buffer buffer = {data, capacity, size, fds, fd_capacity, fd_count};
    return ignis__channel_receive("ignis_channel_receive", handle, &buffer, -1);
}

IGNIS_API ignis_status ignis_channel_receive_within(ignis_channel handle, void *data, int64_t capacity, int64_t *size,
                                                    int *fds, int fd_capacity, int *fd_count, double timeout_s)
{
    const ignis__receive_buffer buffer = {data, capacity, size, fds, fd_capacity, fd_count};
    return ignis__channel_receive("ignis_channel_receive_within", handle, &buffer, timeout_s);
}

IGNIS_API ignis_status ignis_channel_query(ignis_channel handle, ignis_channel_info *info)
{
    static const char call[] = "ignis_channel_query";
    ignis__channel *channel = ignis__check_not_null(call, "info", info) ? ignis__channel_hold(call, handle) : NULL;
    ignis__connection *connection;
    ignis__listener *listener;
    if (!channel)
        return ignis__failed();
    connection = channel->connection;
    listener = channel->listener;
    memset(info, 0, sizeof *info);
    info->method = (connection ? connection->kind : listener->kind)->method;
    info->server = listener != NULL;
    info->alive = !connection || (!ignis__atomic_load(&connection->lost) && connection->kind->alive(connection));
    info->peer_pid = connection ? connection->peer_pid : 0;
    info->peer_uid = connection ? connection->peer_uid : -1;
    info->refused = listener ? (int64_t)ignis__atomic_load(&listener->refused) : 0;
    snprintf(info->path, sizeof info->path, "%s", connection ? connection->path : listener->path);
    if (connection)
        ignis__connection_send_rest(connection);
    info->unsent = connection ? (int64_t)ignis__atomic_load(&connection->unsent) : 0;
    info->fd = info->send_fd = -1;
#ifndef _WIN32
    info->fd = connection ? connection->in : listener->kind == &ignis__connection_memory ? -1 : listener->poll;
    info->send_fd = connection ? connection->out : -1;
#endif
    ignis__channel_drop(channel);
    return IGNIS_OK;
}

IGNIS_API ignis_status ignis_channel_close(ignis_channel handle)
{
    static const char call[] = "ignis_channel_close";
    ignis__channel *channel;
    ignis_status status = IGNIS_OK;
    if (!handle.id)
        return IGNIS_OK;
    channel = ignis__channel_hold(call, handle);
    if (!channel)
        return ignis__failed();
    if (!ignis__channel_kill(channel))
        status = ignis__fail(IGNIS_DIAG_CHANNEL_FREED, call, "another thread has closed the channel");
    ignis__channel_drop(channel);
    return status;
}

/*  collective/transport - arrays of one process used by another. */

#ifndef _WIN32
/*  Threads of a process. A dying process closes its descriptors one by one, and its leases perhaps before
    those of the driver, whose work goes on until then. The kernel tells of each thread whether it is exiting:
    state and flags (4) are words 3 and 9 of a file, after a name of any characters. The first thread stays as
    a zombie until the others are gone. */
typedef struct ignis__thread_counts {
    int64_t pid;
    int count, exiting, zombies;
} ignis__thread_counts;

#endif

#define IGNIS__RECORD_MAGIC "IGNIS-TR"
#define IGNIS__RECORD_VERSION 2
#define IGNIS__IPC_BLOCK ((int64_t)2 << 20) /* the smallest memory that the driver shares */

/*  The description of an exported array. It has no padding, so the seal covers every byte. */
typedef struct ignis__record_of_array {
    char magic[8];
    uint32_t version, kind;
    int32_t dtype, ndim;
    uint32_t pid, pid_namespace;
    int64_t dim[IGNIS_MAX_DIMS];
    int64_t block_size, offset; /* of the shared memory, and of the array in it */
    unsigned char uuid[16];     /* of the exporter's device */
    uint64_t host;              /* the machine, since its start */
    unsigned char process[16];  /* of the exporter, random: process numbers are reused */
    uint64_t serial;            /* of the export, unique in its process */
    ignis__ipc_handle ipc;      /* of IGNIS_TRANSPORT_IPC */
    char tag[32];               /* of the array */
    uint64_t name;              /* this and the seal differ between handles of one export; 0: with descriptors */
    unsigned char seal[32];
} ignis__record_of_array;

typedef struct ignis__transport {
    ignis__slot slot;
    ignis_transport_kind kind;
    ignis__device *src, *dst;
    ignis_channel_method exchange;
    ignis_channel channel;
    int64_t peer_pid;  /* at the peer of the channel; 0: unknown */
    bool peer_certain; /* known from the kernel */
    unsigned char token[IGNIS__SECRET];
    int64_t timeout_ns;
    uint64_t ready;
    uint64_t serial; /* unique in this process, as slots are reused */
    double bandwidth_gbs, latency_us;
    /* Handles sent to a receive of this process; the slot's lock guards them. */
    struct ignis__queued_handle *waiting, **waiting_end;
    char folder[IGNIS__PATH_MAX]; /* of named leases and copies; "": the default folder */
} ignis__transport;

/*  A handle that is out: an export of an array, which it holds, or a copy in a named file. */
typedef struct ignis__export {
    uint64_t transport; /* serial */
    ignis_channel channel;
    int64_t peer_pid; /* of the peer; 0: unknown */
    char description[96];
    ignis__array *array;           /* NULL: a copy */
    uint64_t turn;                 /* number of the array's last export by this transport, growing */
    ignis__record_of_array record; /* without the fields that differ between handles of one array */
    int watch;                     /* hangs up when all handles and imports are closed; -1: no lease */
    char *path;                    /* of the named file; NULL: none */
    struct ignis__export *next;
} ignis__export;

/*  The mapping of an export in this process, shared by arrays. */
typedef struct ignis__import {
    ignis__record_of_array record; /* of the export */
    uint64_t transport;            /* serial; a handle of another transport does not share the mapping */
    ignis__device *device;
    int arrays;
    ignis__mutex lock;      /* held while the first user maps it */
    bool made;              /* the memory is mapped */
    ignis__address address; /* of the shared memory */
    ignis__vmm_block block; /* of IGNIS_TRANSPORT_VMM, from another process */
    ignis__array *own;      /* of an export of this process: the array itself, held; no mapping */
    int lease;
    struct ignis__import *next;
} ignis__import;

struct ignis__shares_type {
    ignis__mutex lock; /* never held while an array is locked or the driver is called */
    uint64_t serials, names, transports;
    uint64_t ending; /* threads that have unlisted handles which their arrays still count */
    ignis__export *exports;
    ignis__import *imports;
};

/*  Facts that an export finds about an array's memory. The device is entered. */
typedef struct ignis__export_facts {
    int64_t block_size, offset;
    ignis__ipc_handle ipc;
    ignis_vmm_handle memory;
    const char *path; /* for a copy in a named file; NULL: a copy in `memory` */
} ignis__export_facts;

/*  A kind of transport; NULL functions have nothing to do. The figures are estimates; for IPC the cost of
    handles limits them, not NVLink. */
typedef struct ignis__transport_ops {
    const char *name, *word; /* for messages; in the environment */
    bool zero_copy;          /* an import is the exporter's memory, with a lease and without copies */
    bool across;             /* works between processes */
    bool copies;             /* a receive copies */
    bool descriptor;         /* its memory is a descriptor */
    bool named;              /* a named file can replace its descriptors */
    double bandwidth_gbs, latency_us;
    bool (*available)(ignis__device *src, ignis__device *dst, ignis__string_writer *why);
    bool (*start)(const char *call, ignis__device *src, ignis__device *dst);
    bool (*export_memory)(const char *call, ignis__array *array, ignis__export_facts *facts);
    bool (*import_memory)(const char *call, ignis__import *mapped, const ignis__device *home,
                          const ignis_vmm_handle *memory);
    void (*unmap_memory)(const char *call, ignis__import *mapped);
    bool (*grant_access)(const char *call, ignis__array *array, ignis__device *device);
} ignis__transport_ops;

/*  A handle that waits for a receive of this process. */
typedef struct ignis__queued_handle {
    ignis_transport_handle handle;
    struct ignis__queued_handle *next;
} ignis__queued_handle;


#ifdef _WIN32

/*  >>transport.system_windows - Windows: leases, exiting processes, shared memory

    The functions of the system for transports; system_posix.c has the same names.
    Uses: Windows.
    Invariants: named files do not exist: pipes carry handles.
    Locks: none. */

IGNIS__PRIVATE uint64_t ignis__host_hash(void)
{
    char name[MAX_COMPUTERNAME_LENGTH + 1];
    DWORD size = sizeof name;
    return GetComputerNameA(name, &size) ? ignis__hash(IGNIS__HASH_START, name, size) : 0;
}
IGNIS__PRIVATE uint32_t ignis__pid_namespace(void) { return 0; }

/*  Creates a lease. The array is in use while ends[1] is open in any process; then ends[0] is broken. */
IGNIS__PRIVATE bool ignis__lease_make(const char *path, int ends[2])
{
    HANDLE in = NULL, out = NULL;
    (void)path; /* a pipe carries all handles, and every channel is a pipe */
    if (!CreatePipe(&in, &out, NULL, 0))
        return ignis__errno_set();
    ends[0] = ignis__fd_of(in);
    ends[1] = ignis__fd_of(out);
    return true;
}
IGNIS__PRIVATE bool ignis__lease_is_over(int end)
{
    return !PeekNamedPipe(ignis__fd_handle(end), NULL, 0, NULL, NULL, NULL);
}

/*  A process has its exit code at once, but counts as ended when all its handles are closed. */
IGNIS__PRIVATE bool ignis__process_is_exiting(int64_t pid)
{
    HANDLE process = OpenProcess(PROCESS_QUERY_LIMITED_INFORMATION | SYNCHRONIZE, FALSE, (DWORD)pid);
    DWORD code = STILL_ACTIVE;
    bool ending = process && GetExitCodeProcess(process, &code) && code != STILL_ACTIVE &&
                  WaitForSingleObject(process, 0) == WAIT_TIMEOUT;
    if (process)
        CloseHandle(process);
    return ending;
}

IGNIS__PRIVATE int ignis__fd_copy(int fd)
{
    HANDLE copy = NULL, self = GetCurrentProcess();
    if (fd > 0 && DuplicateHandle(self, ignis__fd_handle(fd), self, &copy, 0, FALSE, DUPLICATE_SAME_ACCESS))
        return ignis__fd_of(copy);
    return -1;
}
IGNIS__PRIVATE bool ignis__file_publish(const char *part, const char *path)
{
    WCHAR wide[2][IGNIS__WIDE];
    ignis__utf16(part, wide[0]), ignis__utf16(path, wide[1]);
    if (MoveFileExW(wide[0], wide[1], 0))
        return true;
    (void)ignis__file_remove(part);
    return false;
}

/*  Named files are not supported. */
IGNIS__PRIVATE int ignis__named_file_create(const char *path, int64_t size)
{
    return (void)path, (void)size, errno = ENOSYS, -1;
}
IGNIS__PRIVATE int ignis__named_file_open(const char *path, bool lease)
{
    return (void)path, (void)lease, errno = ENOSYS, -1;
}
IGNIS__PRIVATE bool ignis__named_file_exists(const char *path) { return (void)path, false; }

/*  Host memory that processes share; the system keeps its size. */
IGNIS__PRIVATE int ignis__shared_make(size_t size)
{
    HANDLE made = CreateFileMappingW(INVALID_HANDLE_VALUE, NULL, PAGE_READWRITE, (DWORD)((uint64_t)size >> 32),
                                     (DWORD)size, NULL);
    return made ? ignis__fd_of(made) : (ignis__errno_set(), -1);
}

IGNIS__PRIVATE void *ignis__shared_map(int fd, size_t size)
{
    void *data = MapViewOfFile(ignis__fd_handle(fd), FILE_MAP_READ | FILE_MAP_WRITE, 0, 0, size);
    return data ? data : (ignis__errno_set(), (void *)NULL);
}
IGNIS__PRIVATE void ignis__shared_unmap(void *data, size_t size) { (void)size, UnmapViewOfFile(data); }

IGNIS__PRIVATE bool ignis__fd_transfer(int fd, void *data, int64_t size, int64_t offset, bool to_fd)
{
    const int64_t grain = 65536; /* granularity of offsets */
    int64_t first = offset % grain;
    char *mapped = (char *)MapViewOfFile(ignis__fd_handle(fd), to_fd ? FILE_MAP_WRITE : FILE_MAP_READ,
                                         (DWORD)((uint64_t)(offset - first) >> 32), (DWORD)(offset - first),
                                         (SIZE_T)(first + size));
    if (!mapped)
        return ignis__errno_set();
    if (to_fd)
        memcpy(mapped + first, data, (size_t)size);
    else
        memcpy(data, mapped + first, (size_t)size);
    UnmapViewOfFile(mapped);
    return true;
}

/*  Tells if memory has at least `size` bytes: without a file Windows rounds up to pages. */
IGNIS__PRIVATE bool ignis__fd_size_is(int fd, int64_t size)
{
    char last;
    return ignis__fd_transfer(fd, &last, 1, size - 1, false);
}

#else /* POSIX */

/*  >>transport.system_posix - POSIX: leases, named files, exiting processes

    The functions of the system for transports; system_windows.c has the same names.
    Uses: POSIX and /proc.
    Invariants: a named file belongs to this user alone, or is not opened.
    Locks: none. */

IGNIS__PRIVATE uint64_t ignis__host_hash(void)
{
    char text[64];
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "rb");
    size_t size = file ? fread(text, 1, sizeof text, file) : 0;
    if (file)
        fclose(file);
    return ignis__hash(IGNIS__HASH_START, text, size);
}

/*  Process numbers can be compared within one namespace. */
IGNIS__PRIVATE uint32_t ignis__pid_namespace(void)
{
    struct stat info;
    return stat("/proc/self/ns/pid", &info) == 0 ? (uint32_t)info.st_ino : 0;
}

/*  Creates a lease. The array is in use while ends[1] is open in any process; then ends[0] hangs up. With a
    path it is a FIFO, and the importer opens its other end. */
IGNIS__PRIVATE bool ignis__lease_make(const char *path, int ends[2])
{
    ends[1] = -1;
    if (!path ? pipe2(ends, O_CLOEXEC) != 0
              : mkfifo(path, 0600) != 0 || (ends[0] = open(path, O_RDONLY | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC)) < 0)
        return false;
    (void)ignis__fd_register(ends[0]);
    return true;
}

/*  Tells if all other ends are closed. A FIFO tells this only after one was open. */
IGNIS__PRIVATE bool ignis__lease_is_over(int end)
{
    int events = ignis__fd_poll(end, 0, 0);
    return events > 0 && (events & IGNIS__POLL_ENDED) != 0;
}

IGNIS__PRIVATE void ignis__thread_count(void *context, const char *name)
{
    ignis__thread_counts *threads = (ignis__thread_counts *)context;
    char path[64], text[512], state = 0;
    unsigned flags = 0;
    const char *at;
    FILE *file;
    size_t size;
    snprintf(path, sizeof path, "/proc/%lld/task/%.10s/stat", (long long)threads->pid, name);
    file = name[0] == '.' ? NULL : fopen(path, "rb");
    size = file ? fread(text, 1, sizeof text - 1, file) : 0;
    if (file)
        fclose(file);
    text[size] = 0;
    at = strrchr(text, ')');
    if (at && sscanf(at + 1, " %c %*d %*d %*d %*d %*d %u", &state, &flags) == 2) {
        threads->count++;
        threads->exiting += (flags & 4) != 0;
        threads->zombies += state == 'Z';
    }
}
IGNIS__PRIVATE bool ignis__process_is_exiting(int64_t pid)
{
    ignis__thread_counts threads = {pid, 0, 0, 0};
    char path[64];
    snprintf(path, sizeof path, "/proc/%lld/task", (long long)pid);
    return ignis__folder_list(path, ignis__thread_count, &threads) && threads.exiting == threads.count &&
           threads.zombies < threads.count;
}

IGNIS__PRIVATE int ignis__fd_copy(int fd) { return ignis__fd_register(fcntl(fd, F_DUPFD_CLOEXEC, 0)); }

/*  Creates a named file of `size` bytes; -1 with errno on failure. */
IGNIS__PRIVATE int ignis__named_file_create(const char *path, int64_t size)
{
    int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd >= 0 && ftruncate(fd, (off_t)size) != 0) {
        (void)unlink(path);
        ignis__fd_close(&fd);
    }
    return fd;
}

/*  Opens a named file of this user, of the right kind; -1 if there is none. Whoever removes the name owns it,
    importer or exporter. */
IGNIS__PRIVATE int ignis__named_file_open(const char *path, bool lease)
{
    struct stat info;
    int fd = open(path, (lease ? O_WRONLY : O_RDONLY) | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC);
    if (fd >= 0 && (fstat(fd, &info) != 0 || !ignis__stat_is_ours(&info) ||
                    !(lease ? S_ISFIFO(info.st_mode) : S_ISREG(info.st_mode)) || unlink(path) != 0))
        ignis__fd_close(&fd);
    return fd;
}

IGNIS__PRIVATE bool ignis__named_file_exists(const char *path)
{
    struct stat info;
    return lstat(path, &info) == 0;
}

/*  Gives a file its name, unless the name is taken. */
IGNIS__PRIVATE bool ignis__file_publish(const char *part, const char *path)
{
    bool made = chmod(part, 0600) == 0 && link(part, path) == 0;
    (void)ignis__file_remove(part);
    return made;
}

IGNIS__PRIVATE bool ignis__fd_size_is(int fd, int64_t size)
{
    struct stat info;
    return fstat(fd, &info) == 0 && S_ISREG(info.st_mode) && info.st_size == (off_t)size;
}

/*  Reads or writes a range of a file. A truncated file gives an error here; through a mapping it would kill
    the process. */
IGNIS__PRIVATE bool ignis__fd_transfer(int fd, void *data, int64_t size, int64_t offset, bool to_fd)
{
    char *at = (char *)data;
    while (size > 0) {
        ssize_t moved =
            to_fd ? pwrite(fd, at, (size_t)size, (off_t)offset) : pread(fd, at, (size_t)size, (off_t)offset);
        if (moved < 0 && errno == EINTR)
            continue;
        if (moved <= 0)
            return false;
        at += moved;
        offset += moved;
        size -= moved;
    }
    return true;
}

#endif

/*  >>transport.record - records: the bytes of a handle

    Describes an exported array, and the secret that seals records.
    Uses: the private folder, SHA-256.
    Invariants: a record grants nothing: sizes and addresses come from what this process mapped or exported,
    the sender from the socket.
    Locks: ignis__own_identity_lock around the identity of this process. */

typedef char ignis__record_size_check[sizeof(ignis__record_of_array) == IGNIS_TRANSPORT_RECORD_BYTES ? 1 : -1];

/*  Tells if two handles describe the same export. */
IGNIS__PRIVATE bool ignis__record_equal(const ignis__record_of_array *a, const ignis__record_of_array *b)
{
    return memcmp(a, b, offsetof(ignis__record_of_array, name)) == 0;
}

/*  Reads the secret of this user; the first caller creates it. */
IGNIS__COLD IGNIS__PRIVATE bool ignis__transport_secret(const char *call,
                                                        unsigned char token[IGNIS_TRANSPORT_TOKEN_BYTES])
{
    char folder[IGNIS__PATH_MAX] = "", path[IGNIS__PATH_MAX + 32];
    int round;
    if (!ignis__private_folder(call, folder, sizeof folder))
        return false;
    snprintf(path, sizeof path, "%s/transport.token", folder);
    for (round = 0; round < 2; round++) {
        char *part;
        FILE *file;
        bool ok;
        if (ignis__name_file_read(path, token, IGNIS_TRANSPORT_TOKEN_BYTES))
            return true;
        part = round == 0 ? ignis__file_part_path(path) : NULL;
        file = part ? ignis__file_create(part, IGNIS__FILE_NEW) : NULL;
        if (file) {
            ok = ignis__random_bytes(token, IGNIS_TRANSPORT_TOKEN_BYTES) &&
                 fwrite(token, 1, IGNIS_TRANSPORT_TOKEN_BYTES, file) == IGNIS_TRANSPORT_TOKEN_BYTES;
            if (fclose(file) == 0 && ok)
                /* if another process was faster, the next round reads its token */
                (void)ignis__file_publish(part, path);
            else
                (void)ignis__file_remove(part);
        }
        ignis__free(part);
    }
    return ignis__fail_false(IGNIS_DIAG_CHANNEL_IO, call,
                             "cannot create or read the token in %s; set desc.token on both sides", path);
}

/*  The fields that all records of this process share. */
IGNIS__PRIVATE ignis__record_of_array ignis__own_identity;
IGNIS__PRIVATE ignis__mutex ignis__own_identity_lock = IGNIS__MUTEX_INIT;

/*  >>transport.export - exports: arrays whose handles are in use elsewhere

    Lists handles that are out. A handle ends with its lease, its channel, or its transport.
    Uses: records, channels, arrays.
    Invariants: an array counts its handles and cannot be freed or transferred while one is out; a handle
    holds its array.
    Locks: ignis__shares.lock guards both lists; it is never held while an array is locked or the driver is
    called. */

IGNIS__PRIVATE ignis__pool ignis__transports =
    IGNIS__POOL(ignis__transport, IGNIS__KIND_TRANSPORT, "transport", IGNIS_DIAG_TRANSPORT_FREED);

IGNIS__PRIVATE struct ignis__shares_type ignis__shares = {IGNIS__MUTEX_INIT, 0, 0, 0, 0, NULL, NULL};

/*  Counts one more handle of an array. */
IGNIS__PRIVATE bool ignis__array_add_export(const char *call, ignis__array *array)
{
    if (!ignis__array_lock(call, array))
        return false;
    array->exports++;
    array->ref_count++;
    ignis__atomic_add(&array->slot.state, 1);
    ignis__array_unlock(array);
    return true;
}

/*  Counts one handle less. */
IGNIS__PRIVATE void ignis__array_remove_export(const char *call, ignis__array *array)
{
    ignis__mutex_lock(&array->slot.lock);
    array->exports--;
    if (array->ref_count > 0) /* a caller may have dropped references that belong to handles */
        ignis__array_unref(array);
    ignis__array_unlock(array);
    ignis__array_drop(call, array);
}

/*  Tells if the peer of an open channel has closed it or died. */
static bool ignis__channel_peer_is_gone(ignis_channel handle)
{
    ignis__channel *channel = (ignis__channel *)ignis__pool_hold(&ignis__channels, handle.id);
    bool gone = channel && !channel->connection->kind->alive(channel->connection);
    if (channel)
        ignis__channel_drop(channel);
    return gone;
}

IGNIS__PRIVATE void ignis__export_free(ignis__export *entry)
{
    ignis__fd_close(&entry->watch);
    ignis__free(entry->path);
    ignis__free(entry);
}

/*  Tells if a handle ends. With `unused`, handles that no process uses end; else all do, except copies under
    way, which arrive without this process. *dying: it ends as soon as an exiting process has ended. */
static bool ignis__export_is_over(const ignis__export *entry, bool unused, bool *dying)
{
    bool taken = entry->path && !ignis__named_file_exists(entry->path), ending;
    if (!unused && (entry->array || !entry->channel.id))
        return true;
    if (entry->watch >= 0 ? ignis__lease_is_over(entry->watch) : taken) {
        ending =
            entry->record.kind == IGNIS_TRANSPORT_IPC && entry->peer_pid && ignis__process_is_exiting(entry->peer_pid);
        *dying |= ending;
        return !ending;
    }
    return entry->path && !taken && ignis__channel_peer_is_gone(entry->channel);
}

/*  Ends handles of one array or of all (NULL), by one transport or by any (0); all of them, or unused ones.
    Copies that were taken end as well. True: one of them ends when an exiting process has ended. */
IGNIS__PRIVATE bool ignis__exports_end(const char *call, const ignis__array *array, uint64_t transport, bool unused)
{
    ignis__export **at, *entry, *ended = NULL;
    bool dying = false;
    ignis__mutex_lock(&ignis__shares.lock);
    for (at = &ignis__shares.exports; (entry = *at) != NULL;) {
        bool concerned = entry->array
                             ? (!array || entry->array == array) && (!transport || entry->transport == transport)
                             : unused || (!array && entry->transport == transport);
        if (concerned && ignis__export_is_over(entry, unused, &dying)) {
            *at = entry->next;
            entry->next = ended;
            ended = entry;
        } else {
            at = &entry->next;
        }
    }
    if (ended)
        ignis__atomic_add(&ignis__shares.ending, 1);
    ignis__mutex_unlock(&ignis__shares.lock);
    if (!ended)
        return dying;
    while ((entry = ended) != NULL) {
        ended = entry->next;
        if (entry->path)
            (void)ignis__file_remove(entry->path);
        if (entry->array)
            ignis__array_remove_export(call, entry->array);
        ignis__export_free(entry);
    }
    ignis__atomic_add(&ignis__shares.ending, (uint64_t)-1);
    return dying;
}

/*  Updates the count of an array's handles, which another thread may be ending, too. With `wait`, waits for
    processes that are exiting: the system takes a moment to close their leases. */
IGNIS__PRIVATE void ignis__exports_reap_array(const char *call, ignis__array *array, bool wait)
{
    int64_t until_ns = ignis__monotonic_ns() + (wait ? 5000000000 : 0);
    int tries;
    while (ignis__exports_end(call, array, 0, true) && ignis__monotonic_ns() < until_ns)
        ignis__sleep_us(500);
    for (tries = 0; tries < 1000 && ignis__atomic_load(&ignis__shares.ending) != 0; tries++)
        ignis__sleep_us(50);
}

/*  Describes for a message how many handles of an array are out, by transport. The array is locked. */
IGNIS__COLD IGNIS__PRIVATE void ignis__exports_describe(ignis__string_writer *text, const ignis__array *array)
{
    const ignis__export *entry, *other;
    ignis__mutex_lock(&ignis__shares.lock);
    for (entry = ignis__shares.exports; entry; entry = entry->next) {
        int count = 1;
        for (other = ignis__shares.exports; other->turn != entry->turn; other = other->next)
            ;
        if (entry->array != array || other != entry) /* one line for all handles of a transport */
            continue;
        while ((other = other->next) != NULL)
            count += other->turn == entry->turn;
        ignis__string_add(text, "%s%d by %s", text->length ? ", " : "", count, entry->description);
    }
    ignis__mutex_unlock(&ignis__shares.lock);
    ignis__string_add(text, "; close what was imported, or call ignis_transport_release_handle");
}

/*  >>transport.memory - memory of the kinds: export, import, access

    The functions of the table in select.c, one group a kind.
    Uses: blocks of vmm, the driver, pinned host memory.
    Invariants: an export waits for queued work on its array; an import has proven the size of its memory.
    Locks: none is held while a device or another thread is waited for. */

/*  Waits for all work on an array's memory that Ignis has queued. It waits for events, since streams may end
    meanwhile. The storage is not locked: another thread may need it for the work. */
IGNIS__PRIVATE bool ignis__array_wait(const char *call, ignis__array *array)
{
    ignis__storage *storage = array->storage;
    ignis__pooled_event *event[IGNIS__COUNT(storage->used_on) + 1];
    ignis__device *device[IGNIS__COUNT(storage->used_on) + 1];
    ignis__binding binding;
    bool ok = true;
    int i, count = 0;
    if (ignis__capture_refuses(call))
        return false;
    ignis__mutex_lock(&storage->lock);
    for (i = storage->stream ? -1 : 0; ok && i < storage->used_on_count; i++) {
        device[count] = i < 0 ? storage->device : storage->used_on[i].device;
        event[count] = ignis__event_record(call, device[count], i < 0 ? storage->stream : storage->used_on[i].stream);
        ok = event[count] != NULL;
        count += ok;
    }
    ignis__mutex_unlock(&storage->lock);
    for (i = 0; i < count; i++) {
        if (ok && ignis__device_enter(call, device[i], &binding)) {
            ok = !IGNIS__CUDA_FAILED(call, device[i], cuEventSynchronize, (event[i]->event));
            ignis__device_leave(&binding);
        } else {
            ok = false;
        }
        ignis__event_recycle(device[i], event[i]);
    }
    return ok;
}

/*  Enables access of one device to ordinary memory of another. Both are open. */
IGNIS__PRIVATE bool ignis__peer_enable(const char *call, ignis__device *from, ignis__device *to)
{
    ignis__binding binding;
    int error;
    if (from == to)
        return true;
    if (!ignis__device_enter(call, from, &binding))
        return false;
    error = IGNIS__CUDA(cuCtxEnablePeerAccess, (to->context, 0));
    ignis__device_leave(&binding);
    return error == 0 || error == IGNIS__CU_ALREADY_ENABLED ||
           ignis__vmm_check_call(call, from, "cuCtxEnablePeerAccess", error, "from device %d to device %d",
                                 ignis__device_ordinal(from), ignis__device_ordinal(to));
}

static void ignis__ipc_array_release(void *ptr, void *data)
{
    ignis__device *device = (ignis__device *)data;
    ignis__binding binding;
    if (ignis__devices_lost() || !ignis__device_enter("ignis_array_free", device, &binding))
        return;
    (void)IGNIS__CUDA_FAILED("ignis_array_free", device, cuMemFree_v2, ((ignis__address)(uintptr_t)ptr));
    ignis__device_leave(&binding);
}

IGNIS_API ignis_array ignis_ipc_array(const ignis_array_desc *desc)
{
    static const char call[] = "ignis_ipc_array";
    ignis_array result = IGNIS__ZERO;
    ignis__address address = 0;
    ignis__binding binding;
    ignis__device *device;
    int64_t size;
    int error;
    if (!ignis__collective_enter(call) || !ignis__check_not_null(call, "desc", desc) ||
        !ignis__vmm_array_check(call, desc, &size) ||
        !ignis__vmm_round_size(call, size ? size : 1, IGNIS__IPC_BLOCK, &size) ||
        (device = ignis__vmm_enter(call, ignis__desc_device(desc->device), &binding)) == NULL)
        return result;
    if (ignis__vmm_adopt_stream(call, device, desc->stream)) {
        error = IGNIS__CUDA(cuMemAlloc_v2, (&address, (size_t)size));
        if (error == IGNIS__CU_OUT_OF_MEMORY && !ignis__capturing()) {
            ignis__cache_trim(call, device, &ignis__caches[ignis__device_ordinal(device)]);
            error = IGNIS__CUDA(cuMemAlloc_v2, (&address, (size_t)size));
        }
        if (ignis__vmm_check_call(call, device, "cuMemAlloc", error, "allocating %s on device %d",
                                  ignis__bytes_write(size).text, ignis__device_ordinal(device)))
            result = ignis__vmm_wrap(call, device, address, desc, ignis__ipc_array_release, device);
        if (address && !result.id)
            (void)IGNIS__CUDA(cuMemFree_v2, (address));
    }
    ignis__device_leave(&binding);
    return result;
}

IGNIS__PRIVATE bool ignis__vmm_export_memory(const char *call, ignis__array *array, ignis__export_facts *facts)
{
    ignis__physical *memory = ignis__vmm_find_physical(call, array, &facts->offset);
    bool ok = memory && (memory->handle_types & (int)IGNIS__VMM_HANDLE_SYSTEM) != 0;
    if (!memory)
        return false;
    facts->block_size = memory->size;
    if (!ok)
        ignis__fail(IGNIS_DIAG_NOT_SHAREABLE, call, "the memory of array #%llu was created with IGNIS_VMM_HANDLE_NONE",
                    (unsigned long long)array->id);
    ok = ok && ignis__physical_export(call, memory, &facts->memory);
    ignis__physical_drop(call, memory); /* the exported handle keeps it */
    return ok;
}

IGNIS__PRIVATE bool ignis__ipc_export_memory(const char *call, ignis__array *array, ignis__export_facts *facts)
{
    ignis__address base = 0, address = ignis__atomic_load(&array->storage->address) + (uint64_t)array->offset;
    int error;
    if (!ignis__vmm_find_allocation(call, array, "ignis_ipc_array", &base, &facts->block_size))
        return false;
    if (array->storage->release_fn != ignis__ipc_array_release &&
        (base % (uint64_t)IGNIS__IPC_BLOCK != 0 || facts->block_size % IGNIS__IPC_BLOCK != 0))
        return ignis__fail_false(
            IGNIS_DIAG_NOT_SHAREABLE, call,
            "%s is in an allocation of %lld bytes; the driver would expose the other memory of its 2 MiB block; "
            "create it with ignis_ipc_array",
            ignis__array_label(array).text, (long long)facts->block_size);
    error = IGNIS__CUDA(cuIpcGetMemHandle, (&facts->ipc, base));
    if (error != 0)
        ignis__fail_because(IGNIS_DIAG_NOT_SHAREABLE, call, error, ignis__cuda_name(error), NULL,
                            "%s is not in memory of cuMemAlloc: cuIpcGetMemHandle returned %s (%d); create it with "
                            "ignis_ipc_array",
                            ignis__array_label(array).text, ignis__cuda_name(error), error);
    facts->offset = (int64_t)(address - base);
    return error == 0;
}

/*  Exports any memory: peer copies stay within one process. */
IGNIS__PRIVATE bool ignis__peer_export_memory(const char *call, ignis__array *array, ignis__export_facts *facts)
{
    ignis__work work;
    ignis__address address;
    bool ok = !ignis__array_refuses_address(call, array) && ignis__work_begin(call, array->storage->device, &work);
    if (!ok)
        return false;
    ok = ignis__work_read(&work, array, &address);
    ignis__work_end(&work);
    facts->block_size = array->storage->size ? array->storage->size : 1;
    facts->offset = array->offset;
    return ok;
}

/*  Copies between processes go through pinned chunks. A copy has a chunk of its own, since it may wait for
    work that waits for another copy. */
#define IGNIS__STAGING_BYTES ((int64_t)4 << 20)

/*  Copies between an array and a file of its size, in memory or in the private folder. */
IGNIS__PRIVATE bool ignis__host_copy(const char *call, ignis__array *array, int fd, bool to_device)
{
    int64_t size = ignis__array_bytes(array), done, part;
    ignis__pinned *piece = NULL;
    ignis__address address;
    ignis__work work;
    bool ok = ignis__work_begin(call, array->storage->device, &work), moved = true;
    if (!ok)
        return false;
    ok = (to_device ? ignis__work_write(&work, array, &address) : ignis__work_read(&work, array, &address)) &&
         (size == 0 || (piece = ignis__pinned_chunk_take(call, work.device, IGNIS__STAGING_BYTES)) != NULL);
    for (done = 0; ok && done < size; done += part) {
        part = size - done < IGNIS__STAGING_BYTES ? size - done : IGNIS__STAGING_BYTES;
        if (to_device)
            ok = (moved = ignis__fd_transfer(fd, piece->memory, part, done, false)) &&
                 ignis__copy_from_host(&work, address + (uint64_t)done, piece->memory, part);
        else
            ok = ignis__copy_to_host(&work, piece->memory, address + (uint64_t)done, part) &&
                 (moved = ignis__fd_transfer(fd, piece->memory, part, done, true));
    }
    if (!moved)
        ignis__fail(IGNIS_DIAG_CHANNEL_IO, call, "%lld bytes of shared host memory are incomplete or cannot be %s: %s",
                    (long long)size, to_device ? "read" : "written", strerror(errno));
    /* A failed copy may still be running: leak the chunk rather than let it write into the next one. */
    if (piece && (ok || !moved || ignis__device_finish(work.device) == 0))
        ignis__pinned_chunk_keep(work.device, piece);
    else
        ignis__free(piece);
    ignis__work_end(&work);
    return ok;
}

IGNIS__PRIVATE bool ignis__host_export_memory(const char *call, ignis__array *array, ignis__export_facts *facts)
{
    int64_t size = ignis__array_bytes(array);
    int fd;
    bool ok;
    facts->block_size = size ? size : 1;
    fd = facts->path ? ignis__named_file_create(facts->path, facts->block_size)
                     : ignis__shared_make((size_t)facts->block_size);
    if (fd < 0)
        return ignis__fail_false(IGNIS_DIAG_CHANNEL_IO, call, "cannot share %lld bytes of host memory: %s",
                                 (long long)size, strerror(errno));
    ok = ignis__host_copy(call, array, fd, false);
    if (ok && !facts->path) {
        ignis__vmm_handle_set_fd(&facts->memory, fd);
        return true;
    }
    ignis__fd_close(&fd);
    if (!ok && facts->path)
        (void)ignis__file_remove(facts->path);
    return ok;
}

/*  Maps memory of another process from device `home`; its size is proven, its address kept. The device is
    entered. */
IGNIS__PRIVATE bool ignis__vmm_import_memory(const char *call, ignis__import *mapped, const ignis__device *home,
                                             const ignis_vmm_handle *memory)
{
    const ignis__device *lies;
    if (!ignis__vmm_block_import(call, mapped->device, memory, mapped->record.block_size, &mapped->block))
        return false;
    lies = mapped->block.memory->device;
    if (lies == home) {
        mapped->address = mapped->block.address;
        return true;
    }
    ignis__fail(IGNIS_DIAG_TRANSPORT_MISMATCH, call, "the memory is on device %d, the handle says device %d",
                ignis__device_ordinal(lies), ignis__device_ordinal(home));
    ignis__vmm_block_destroy(call, &mapped->block);
    return false;
}

IGNIS__PRIVATE bool ignis__ipc_import_memory(const char *call, ignis__import *mapped, const ignis__device *home,
                                             const ignis_vmm_handle *memory)
{
    const ignis__record_of_array *record = &mapped->record;
    ignis__address address = 0, base = 0;
    size_t size = 0;
    (void)home, (void)memory;
    if (IGNIS__VMM_FAILED(call, mapped->device, cuIpcOpenMemHandle_v2, (&address, record->ipc, IGNIS__CU_IPC_LAZY_PEER),
                          "opening %s of process %u", ignis__bytes_write(record->block_size).text, record->pid))
        return false;
    if (!IGNIS__VMM_FAILED(call, mapped->device, cuMemGetAddressRange_v2, (&base, &size, address),
                           "reading its size")) {
        if (base == address && (int64_t)size >= record->block_size) {
            mapped->address = address;
            return true;
        }
        ignis__fail(IGNIS_DIAG_TRANSPORT_MISMATCH, call, "the handle says %lld bytes, the memory has %lld",
                    (long long)record->block_size, (long long)size);
    }
    (void)IGNIS__CUDA(cuIpcCloseMemHandle, (address));
    return false;
}

IGNIS__PRIVATE void ignis__vmm_unmap_memory(const char *call, ignis__import *mapped)
{
    ignis__vmm_block_destroy(call, &mapped->block);
}

IGNIS__PRIVATE void ignis__ipc_unmap_memory(const char *call, ignis__import *mapped)
{
    ignis__binding binding;
    if (ignis__devices_lost() || !ignis__device_enter(call, mapped->device, &binding))
        return;
    (void)IGNIS__CUDA_FAILED(call, mapped->device, cuIpcCloseMemHandle, (mapped->address));
    ignis__device_leave(&binding);
}

/*  Gives an entered device access to memory of this process. */
IGNIS__PRIVATE bool ignis__vmm_grant_access(const char *call, ignis__array *array, ignis__device *device)
{
    ignis_vmm_access_desc access = ignis_vmm_access_of(device->handle, true);
    ignis__address at = ignis__atomic_load(&array->storage->address) + (uint64_t)array->offset;
    ignis__physical *memory;
    int64_t offset;
    bool ok;
    if (device == array->storage->device)
        return true;
    memory = ignis__vmm_find_physical(call, array, &offset);
    if (!memory)
        return false;
    ok = !IGNIS__VMM_FAILED(call, device, cuMemSetAccess, (at - (uint64_t)offset, (size_t)memory->size, &access, 1),
                            "giving device %d access to %s", ignis__device_ordinal(device),
                            ignis__bytes_write(memory->size).text);
    ignis__physical_drop(call, memory);
    return ok;
}

IGNIS__PRIVATE bool ignis__peer_grant_access(const char *call, ignis__array *array, ignis__device *device)
{
    return ignis__peer_enable(call, device, array->storage->device);
}

/*  >>transport.select - kinds of transports: the table, which is available, which is best

    Tells what connects two devices, and why not.
    Uses: the memory functions, vmm.
    Invariants: VMM counts as available after a test write and read, since drivers claim more than they can.
    Locks: none. */

static bool ignis__attribute(ignis__device *device, int attribute)
{
    int value = 0;
    return IGNIS__CUDA(cuDeviceGetAttribute, (&value, attribute, device->handle)) == 0 && value != 0;
}

static bool ignis__peer_available(ignis__device *src, ignis__device *dst, ignis__string_writer *why)
{
    int reaches = src == dst;
    if (reaches || (IGNIS__CUDA(cuDeviceCanAccessPeer, (&reaches, dst->handle, src->handle)) == 0 && reaches != 0))
        return true;
    ignis__string_add(why, "device %d cannot reach device %d's memory", ignis__device_ordinal(dst),
                      ignis__device_ordinal(src));
    return false;
}

/*  Writes into exported memory of src, imported for dst, and reads it back: drivers claim more than they
    can. */
static bool ignis__vmm_probe_words(const char *call, const ignis__vmm_block *there, const ignis__vmm_block *here)
{
    static const uint32_t sent[4] = {0x1615D0F5u, 0x00C0FFEEu, 0xA5A5A5A5u, 0x01234567u};
    uint32_t got[4] = {0, 0, 0, 0};
    ignis__work work;
    bool ok = ignis__work_begin(call, there->device, &work);
    if (!ok)
        return false;
    ok = ignis__copy_from_host(&work, there->address, sent, (int64_t)sizeof sent) &&
         !IGNIS__CUDA_FAILED(call, work.device, cuStreamSynchronize, (work.stream));
    ignis__work_end(&work);
    if (!ok || !ignis__work_begin(call, here->device, &work))
        return false;
    ok = ignis__copy_to_host(&work, got, here->address, (int64_t)sizeof got);
    ignis__work_end(&work);
    if (ok && memcmp(sent, got, sizeof sent) != 0)
        return ignis__fail_false(IGNIS_DIAG_TRANSPORT_UNAVAILABLE, call,
                                 "device %d does not see what device %d has written",
                                 ignis__device_ordinal(there->device), ignis__device_ordinal(here->device));
    return ok;
}

IGNIS__COLD static bool ignis__vmm_probe(const char *call, ignis__device *src, ignis__device *dst)
{
    ignis__vmm_block made, seen;
    ignis_vmm_handle handle;
    bool ok;
    if (!ignis__vmm_block_create(call, src, 1, NULL, 0, true, &made))
        return false;
    ok = ignis__physical_export(call, made.memory, &handle);
    if (ok) {
        ok = ignis__vmm_block_import(call, dst, &handle, made.size, &seen);
        ignis__vmm_handle_close(&handle);
        if (ok) {
            ok = ignis__vmm_probe_words(call, &made, &seen) && ignis__vmm_probe_words(call, &seen, &made);
            if (!ok) /* a copy may be running */
                (void)ignis__devices_wait(call, (uint64_t)1 << (src - ignis__devices) | (uint64_t)1
                                                                                            << (dst - ignis__devices));
            ignis__vmm_block_destroy(call, &seen);
        }
    }
    ignis__vmm_block_destroy(call, &made);
    return ok;
}

/* the setup in which a pair was tested */
static uint64_t ignis__vmm_pair_tested[IGNIS_MAX_DEVICES][IGNIS_MAX_DEVICES];

static bool ignis__vmm_available(ignis__device *src, ignis__device *dst, ignis__string_writer *why)
{
    static const char call[] = "ignis_transport_available";
    uint64_t *is_authenticated = &ignis__vmm_pair_tested[src - ignis__devices][dst - ignis__devices];
    ignis__record before = ignis__this_thread.record;
    bool ok;
    if (ignis__atomic_load(is_authenticated) == ignis__global.setups)
        return true;
    if (!ignis__attribute(src, IGNIS__CU_ATTRIBUTE_VMM) || !ignis__attribute(dst, IGNIS__CU_ATTRIBUTE_VMM) ||
        !ignis__attribute(src, IGNIS__CU_ATTRIBUTE_VMM_SYSTEM)) {
        ignis__string_add(why, "device %d or %d cannot create memory that other processes can map",
                          ignis__device_ordinal(src), ignis__device_ordinal(dst));
        return false;
    }
    if (!ignis__peer_available(src, dst, why))
        return false;
    /* a failed probe is an answer, not a failure of the thread */
    memset(&ignis__this_thread.record, 0, sizeof before);
    ok = !ignis__capture_refuses(call) && ignis__vmm_probe(call, src, dst);
    if (ok)
        ignis__atomic_store(is_authenticated, ignis__global.setups);
    else
        ignis__string_add(why, "a test write and read failed: %s", ignis_status_message());
    ignis__record_drop(&ignis__this_thread);
    ignis__this_thread.record = before;
    return ok;
}

static bool ignis__host_available(ignis__device *src, ignis__device *dst, ignis__string_writer *why)
{
    (void)src, (void)dst, (void)why;
    return true;
}

static bool ignis__peer_start(const char *call, ignis__device *src, ignis__device *dst)
{
    return ignis__peer_enable(call, dst, src) && ignis__peer_enable(call, src, dst);
}

IGNIS__PRIVATE const ignis__transport_ops ignis__transport_kinds[IGNIS_TRANSPORT_KIND_COUNT] = {
    /*               zero_copy across copies descriptor named */
    {"", "", false, false, false, false, false, 0, 0, NULL, NULL, NULL, NULL, NULL, NULL},
    {"VMM", "vmm", true, true, false, true, false, 300, 5, ignis__vmm_available, NULL, ignis__vmm_export_memory,
     ignis__vmm_import_memory, ignis__vmm_unmap_memory, ignis__vmm_grant_access},
    {"peer", "peer", true, false, true, false, true, 300, 10, ignis__peer_available, ignis__peer_start,
     ignis__peer_export_memory, NULL, NULL, ignis__peer_grant_access},
    {"IPC", "ipc", true, true, false, false, true, 25, 10, ignis__peer_available, NULL, ignis__ipc_export_memory,
     ignis__ipc_import_memory, ignis__ipc_unmap_memory, ignis__peer_grant_access},
    {"host", "host", false, true, true, true, true, 10, 50, ignis__host_available, NULL, ignis__host_export_memory,
     NULL, NULL, NULL},
};

IGNIS__PRIVATE bool ignis__transport_kind_valid(const char *call, ignis_transport_kind kind)
{
    if (kind > IGNIS_TRANSPORT_AUTO && kind < IGNIS_TRANSPORT_KIND_COUNT)
        return true;
    return ignis__fail_false(IGNIS_DIAG_BAD_ENUM, call, "kind is %d; expected IGNIS_TRANSPORT_VMM to _HOST, %d to %d",
                             (int)kind, (int)IGNIS_TRANSPORT_VMM, (int)IGNIS_TRANSPORT_HOST);
}

/*  Opens both devices. */
IGNIS__PRIVATE bool ignis__transport_devices(const char *call, int src, int dst, ignis__device **devices)
{
    devices[0] = ignis__device_get(call, src);
    devices[1] = devices[0] ? ignis__device_get(call, dst) : NULL;
    return devices[1] && ignis__vmm_open_device(call, src) && ignis__vmm_open_device(call, dst);
}

IGNIS_API bool ignis_transport_available(ignis_transport_kind kind, int src, int dst, char *reason, size_t capacity)
{
    static const char call[] = "ignis_transport_available";
    ignis__device *devices[2];
    ignis__string_writer why;
    char none[1];
    ignis__string_begin(&why, reason ? reason : none, reason ? capacity : sizeof none);
    return ignis__collective_enter(call) && ignis__transport_kind_valid(call, kind) &&
           ignis__transport_devices(call, src, dst, devices) &&
           ignis__transport_kinds[kind].available(devices[0], devices[1], &why);
}

/*  Reads the kind that the environment names; AUTO if it names none. */
static bool ignis__transport_read_environment(const char *call, ignis_transport_kind *kind)
{
    const char *word = ignis__env("IGNIS_TRANSPORT");
    int i;
    *kind = IGNIS_TRANSPORT_AUTO;
    if (!word || !*word)
        return true;
    for (i = 1; i < IGNIS_TRANSPORT_KIND_COUNT; i++)
        if (strcmp(word, ignis__transport_kinds[i].word) == 0)
            *kind = (ignis_transport_kind)i;
    if (*kind != IGNIS_TRANSPORT_AUTO)
        return true;
    return ignis__fail_false(IGNIS_DIAG_BAD_ENUM, call, "IGNIS_TRANSPORT is \"%.40s\"; expected vmm, peer, ipc or host",
                             word);
}

/*  Chooses the first available kind. descriptors: the channel carries them. */
IGNIS__PRIVATE bool ignis__transport_choose(const char *call, ignis__device *const *devices, bool same_process,
                                            bool descriptors, ignis_transport_choice *choice)
{
    static const ignis_transport_kind order[] = {IGNIS_TRANSPORT_VMM, IGNIS_TRANSPORT_PEER, IGNIS_TRANSPORT_HOST};
    ignis_transport_kind wanted;
    ignis__string_writer text;
    int i;
    memset(choice, 0, sizeof *choice);
    ignis__string_begin(&text, choice->reason, sizeof choice->reason);
    if (!ignis__transport_read_environment(call, &wanted))
        return false;
    for (i = 0; i < (wanted ? 1 : IGNIS__COUNT(order)); i++) {
        ignis_transport_kind kind = wanted ? wanted : order[i];
        const ignis__transport_ops *ops = &ignis__transport_kinds[kind];
        ignis__string_add(&text, "%s%s: ", i ? "; " : wanted ? "named by IGNIS_TRANSPORT: " : "", ops->name);
        if (!same_process && !ops->across) {
            ignis__string_add(&text, "works within one process only");
        } else if (!descriptors && !ops->named) {
            ignis__string_add(&text, "its descriptors need IGNIS_CHANNEL_SOCKET");
        } else if (ops->available(devices[0], devices[1], &text)) {
            ignis__string_add(&text, kind == IGNIS_TRANSPORT_VMM ? "a test write and read succeeded" : "available");
            choice->kind = kind;
            return true;
        }
    }
    return ignis__fail_false(IGNIS_DIAG_TRANSPORT_UNAVAILABLE, call,
                             "no transport connects device %d with device %d: %s", ignis__device_ordinal(devices[0]),
                             ignis__device_ordinal(devices[1]), choice->reason);
}

IGNIS_API ignis_status ignis_transport_select(int src, int dst, bool same_process, ignis_transport_choice *choice)
{
    static const char call[] = "ignis_transport_select";
    ignis__device *devices[2];
    return ignis__collective_enter(call) && ignis__check_not_null(call, "choice", choice) &&
                   ignis__transport_devices(call, src, dst, devices) &&
                   ignis__transport_choose(call, devices, same_process, true, choice)
               ? IGNIS_OK
               : ignis__failed();
}

/*  >>transport - transports: creating, initializing, ending

    The pool of transports and its public functions.
    Uses: exports, kinds, channels.
    Invariants: ending a transport ends its exports and frees its imported arrays.
    Locks: the slot; ignis__shares.lock. */

IGNIS__PRIVATE void ignis__handle_close(ignis_transport_handle *handle)
{
    ignis__vmm_handle_close(&handle->memory);
    if (handle->has_lease)
        ignis__fd_close(&handle->lease);
    memset(handle, 0, sizeof *handle);
}

IGNIS__PRIVATE ignis__transport *ignis__transport_hold(const char *call, ignis_transport handle)
{
    return (ignis__transport *)ignis__handle_hold(call, &ignis__transports, handle.id);
}

/*  Takes the next waiting handle for the caller. */
IGNIS__PRIVATE bool ignis__queued_handle_take(ignis__transport *transport, ignis_transport_handle *handle)
{
    ignis__queued_handle *first;
    ignis__mutex_lock(&transport->slot.lock);
    first = transport->waiting;
    if (first) {
        transport->waiting = first->next;
        if (!first->next)
            transport->waiting_end = &transport->waiting;
        *handle = first->handle;
    }
    ignis__mutex_unlock(&transport->slot.lock);
    ignis__free(first);
    return first != NULL;
}

static void ignis__queued_handles_close(ignis__transport *transport)
{
    ignis_transport_handle handle;
    while (ignis__queued_handle_take(transport, &handle))
        ignis__handle_close(&handle);
}

IGNIS__PRIVATE void ignis__transport_drop(ignis__transport *transport)
{
    if (!ignis__pool_drop(transport))
        return;
    ignis__queued_handles_close(transport);
    ignis__pool_recycle(&ignis__transports, transport);
}

/*  Holds a transport that was initialized. */
IGNIS__PRIVATE ignis__transport *ignis__transport_hold_ready(const char *call, ignis_transport handle)
{
    ignis__transport *transport = ignis__transport_hold(call, handle);
    if (!transport || ignis__atomic_load(&transport->ready))
        return transport;
    ignis__fail(IGNIS_DIAG_TRANSPORT_STATE, call,
                "the transport is not initialized; call ignis_transport_initialize first");
    ignis__transport_drop(transport);
    return NULL;
}

IGNIS__ONE_COPY IGNIS__PRIVATE ignis_status ignis__transport_end_call(ignis__transport *transport, bool ok)
{
    ignis__transport_drop(transport);
    return ok ? IGNIS_OK : ignis__failed();
}

IGNIS__PRIVATE const ignis__transport_ops *ignis__transport_ops_of(const ignis__transport *transport)
{
    return &ignis__transport_kinds[transport->kind];
}

/*  Tells if the exchange method carries descriptors; else handles have named files. */
IGNIS__PRIVATE bool ignis__transport_carries_descriptors(const ignis__transport *transport)
{
    return ignis__connection_kinds[transport->exchange]->descriptors;
}

IGNIS__PRIVATE void ignis__transport_describe(ignis__string_writer *text, const ignis__transport *transport)
{
    static const char *const methods[] = {"default", "socket", "named_pipe", "shared_memory"};
    ignis__string_add(text, "%s[%d->%d, %s]", ignis__transport_ops_of(transport)->name,
                      ignis__device_ordinal(transport->src), ignis__device_ordinal(transport->dst),
                      methods[transport->exchange]);
}

static void ignis__import_free(const char *call, ignis__import *mapped)
{
    const ignis__transport_ops *ops = &ignis__transport_kinds[mapped->record.kind];
    if (mapped->own)
        ignis__array_drop(call, mapped->own);
    else if (mapped->made && ops->unmap_memory)
        ops->unmap_memory(call, mapped);
    ignis__fd_close(&mapped->lease);
    ignis__free(mapped);
}

/*  Drops an import. The last one of a mapping unmaps it and tells the exporter. */
IGNIS__PRIVATE void ignis__import_drop(const char *call, ignis__import *mapped)
{
    ignis__import **at;
    bool last;
    ignis__mutex_lock(&ignis__shares.lock);
    last = --mapped->arrays == 0;
    if (last) {
        for (at = &ignis__shares.imports; *at != mapped; at = &(*at)->next)
            ;
        *at = mapped->next;
    }
    ignis__mutex_unlock(&ignis__shares.lock);
    if (last)
        ignis__import_free(call, mapped);
}

IGNIS__PRIVATE void ignis__import_release(void *ptr, void *data)
{
    (void)ptr;
    ignis__import_drop("ignis_array_free", (ignis__import *)data);
}

/*  Tells if a transport has imported this array (not a view). */
IGNIS__PRIVATE bool ignis__array_imported_by(const ignis__array *array, uint64_t transport)
{
    const ignis__storage *storage = array->storage;
    return storage->release_fn == ignis__import_release && !array->view &&
           ((const ignis__import *)storage->release_data)->transport == transport;
}

/*  Frees the arrays that a transport has imported, as their owner; referenced ones stay. */
static void ignis__imports_free(const char *call, uint64_t transport)
{
    ignis__array *array;
    uint64_t index = 0;
    while ((array = (ignis__array *)ignis__pool_next(&ignis__arrays, &index)) != NULL) {
        if (ignis__array_imported_by(array, transport)) {
            ignis__mutex_lock(&array->slot.lock);
            if (ignis__pool_live(array) && array->ref_count == 0)
                ignis__array_kill(array);
            ignis__array_unlock(array);
        }
        ignis__array_drop(call, array);
    }
}

IGNIS__COLD static bool ignis__transport_end(const char *call, ignis__transport *transport)
{
    if (!ignis__handle_kill(transport))
        return false;
    ignis__queued_handles_close(transport);
    (void)ignis__exports_end(call, NULL, transport->serial, false);
    ignis__imports_free(call, transport->serial);
    return true;
}

IGNIS__COLD static void ignis__transports_close(const char *call)
{
    ignis__transport *transport;
    ignis__export *entry;
    uint64_t index = 0;
    while ((transport = (ignis__transport *)ignis__pool_next(&ignis__transports, &index)) != NULL) {
        ignis__leak_report(call, IGNIS_DIAG_HANDLE_LEAKED, "transport by %s",
                           ignis__transport_kinds[transport->kind].name);
        ignis__transport_end(call, transport);
        ignis__transport_drop(transport);
    }
    (void)ignis__exports_end(call, NULL, 0, false); /* of arrays that were shared without a transport */
    (void)ignis__exports_end(call, NULL, 0, true);
    while ((entry = ignis__shares.exports) != NULL) { /* copies that were not taken yet */
        ignis__shares.exports = entry->next;
        ignis__export_free(entry);
    }
}

/*  Prepares this process for handles. Hooks of arrays are set once, before any export is counted. */
IGNIS__PRIVATE bool ignis__transports_prepare(const char *call)
{
    ignis__record_of_array *self = &ignis__own_identity;
    bool known;
    ignis__mutex_lock(&ignis__own_identity_lock);
    known = self->version != 0 || ignis__random_bytes(self->process, sizeof self->process);
    if (known && !self->version) {
        memcpy(self->magic, IGNIS__RECORD_MAGIC, sizeof self->magic);
        self->pid = (uint32_t)ignis__process_id();
        self->pid_namespace = ignis__pid_namespace();
        self->host = ignis__host_hash();
        self->version = IGNIS__RECORD_VERSION;
        IGNIS__HOOK_SET(ignis__export_holders, ignis__exports_describe);
        IGNIS__HOOK_SET(ignis__exports_reap, ignis__exports_reap_array);
    }
    ignis__mutex_unlock(&ignis__own_identity_lock);
    ignis__section_use(IGNIS__SECTION_TRANSPORT, ignis__transports_close);
    if (!known)
        ignis__fail(IGNIS_DIAG_CHANNEL_IO, call, "the system returned no random bytes");
    return known;
}

/*  Reads what a transport needs of its channel. */
static bool ignis__transport_read_channel(const char *call, ignis__transport *transport, ignis_channel handle)
{
    ignis__channel *channel = ignis__channel_hold_as(call, handle, false);
    const char *slash;
    if (!channel)
        return false;
    transport->channel = handle;
    transport->exchange = channel->connection->kind->method;
    transport->peer_pid = channel->connection->peer_pid;
    transport->peer_certain = channel->connection->kind->descriptors && transport->peer_pid != 0;
    slash = strrchr(channel->connection->path, '/');
    if (slash) /* the folder that both sides know */
        snprintf(transport->folder, sizeof transport->folder, "%.*s", (int)(slash - channel->connection->path),
                 channel->connection->path);
    ignis__channel_drop(channel);
    return true;
}

/*  Checks a description and fills a transport from it. */
static bool ignis__transport_read_desc(const char *call, const ignis_transport_desc *desc, ignis__transport *out)
{
    ignis_transport_choice choice;
    ignis__device *devices[2];
    char reason[512];
    ignis__string_writer why;
    memset(out, 0, sizeof *out);
    if (desc->kind != IGNIS_TRANSPORT_AUTO && !ignis__transport_kind_valid(call, desc->kind))
        return false;
    if ((unsigned)desc->exchange >= IGNIS_CHANNEL_METHOD_COUNT)
        return ignis__fail_false(IGNIS_DIAG_BAD_ENUM, call,
                                 "desc.exchange is %d; expected IGNIS_CHANNEL_SOCKET to _SHM, 1 to 3",
                                 (int)desc->exchange);
    if (!(desc->timeout_s >= 0) || desc->timeout_s > 1e6)
        return ignis__fail_false(IGNIS_DIAG_BAD_NUMBER, call, "desc.timeout_s is %g; expected 0 to 1e6",
                                 desc->timeout_s);
    if (!ignis__transport_devices(call, ignis__desc_device(desc->src_device), ignis__desc_device(desc->dst_device),
                                  devices))
        return false;
    out->src = devices[0];
    out->dst = devices[1];
    out->timeout_ns = (int64_t)((desc->timeout_s > 0 ? desc->timeout_s : 30) * 1e9);
    out->exchange = desc->exchange ? desc->exchange : IGNIS__EXCHANGE_SYSTEM;
    if (!ignis__connection_kinds[out->exchange])
        return ignis__fail_false(IGNIS_DIAG_UNSUPPORTED, call, "channels by %s are not supported on this system",
                                 ignis__method_names[out->exchange]);
    if (desc->channel.id && !ignis__transport_read_channel(call, out, desc->channel))
        return false;
    choice.kind = desc->kind;
    ignis__string_begin(&why, reason, sizeof reason);
    if (desc->kind == IGNIS_TRANSPORT_AUTO) {
        bool alone = desc->channel.id == 0;
        if (!ignis__transport_choose(call, devices, alone, alone || ignis__transport_carries_descriptors(out), &choice))
            return false;
    } else if (!ignis__transport_kinds[desc->kind].available(devices[0], devices[1], &why)) {
        return ignis__fail_false(IGNIS_DIAG_TRANSPORT_UNAVAILABLE, call, "%s is not available: %s",
                                 ignis__transport_kinds[desc->kind].name, reason);
    }
    out->kind = choice.kind;
    if (desc->token)
        memcpy(out->token, desc->token, IGNIS_TRANSPORT_TOKEN_BYTES);
    return desc->token || ignis__transport_secret(call, out->token);
}

IGNIS_API IGNIS__COLD ignis_transport ignis_transport_create(const ignis_transport_desc *desc)
{
    static const char call[] = "ignis_transport_create";
    ignis_transport result = IGNIS__ZERO;
    ignis__transport *transport, fresh;
    if (!ignis__collective_enter(call) || !ignis__check_not_null(call, "desc", desc) ||
        !ignis__transport_read_desc(call, desc, &fresh) || !ignis__transports_prepare(call) ||
        (transport = (ignis__transport *)ignis__pool_take(call, &ignis__transports)) == NULL)
        return result;
    memcpy((char *)transport + sizeof fresh.slot, (const char *)&fresh + sizeof fresh.slot,
           sizeof fresh - sizeof fresh.slot);
    transport->serial = ignis__atomic_add(&ignis__shares.transports, 1);
    transport->waiting_end = &transport->waiting;
    result.id = ignis__pool_publish(&ignis__transports, transport);
    return result;
}

IGNIS_API ignis_status ignis_transport_destroy(ignis_transport handle)
{
    static const char call[] = "ignis_transport_destroy";
    const uint64_t failures = ignis__failures();
    ignis__transport *transport;
    if (!handle.id)
        return IGNIS_OK;
    transport = ignis__transport_hold(call, handle);
    bool live;
    if (!transport)
        return ignis__failed();
    live = ignis__transport_end(call, transport) ||
           ignis__fail_false(IGNIS_DIAG_TRANSPORT_FREED, call, "the transport was destroyed");
    return ignis__ended(failures, ignis__transport_end_call(transport, live) == IGNIS_OK);
}

IGNIS_API ignis_status ignis_transport_initialize(ignis_transport handle)
{
    static const char call[] = "ignis_transport_initialize";
    ignis__transport *transport = ignis__transport_hold(call, handle);
    const ignis__transport_ops *ops;
    bool ok;
    if (!transport)
        return ignis__failed();
    ops = ignis__transport_ops_of(transport);
    ok = !ops->start || ignis__atomic_load(&transport->ready) != 0 || ops->start(call, transport->src, transport->dst);
    if (ok)
        ignis__atomic_store(&transport->ready, 1);
    return ignis__transport_end_call(transport, ok);
}

IGNIS_API bool ignis_transport_ready(ignis_transport handle)
{
    ignis__transport *transport = ignis__transport_hold("ignis_transport_ready", handle);
    bool ready;
    if (!transport)
        return false;
    ready = ignis__atomic_load(&transport->ready) != 0;
    ignis__transport_drop(transport);
    return ready;
}

IGNIS_API ignis_status ignis_transport_query(ignis_transport handle, ignis_transport_info *info)
{
    static const char call[] = "ignis_transport_query";
    ignis__transport *transport = ignis__transport_hold(call, handle);
    const ignis__transport_ops *ops;
    const ignis__import *mapped;
    const ignis__export *entry;
    if (!transport)
        return ignis__failed();
    if (!ignis__check_not_null(call, "info", info))
        return ignis__transport_end_call(transport, false);
    (void)ignis__exports_end(call, NULL, transport->serial, true);
    ops = ignis__transport_ops_of(transport);
    memset(info, 0, sizeof *info);
    info->kind = transport->kind;
    info->name = ops->name;
    info->src_device = ignis__device_ordinal(transport->src);
    info->dst_device = ignis__device_ordinal(transport->dst);
    info->exchange = transport->exchange;
    info->ready = ignis__atomic_load(&transport->ready) != 0;
    info->zero_copy = ops->zero_copy;
    info->estimated_bandwidth_gbs = ops->bandwidth_gbs;
    info->estimated_latency_us = ops->latency_us;
    ignis__mutex_lock(&transport->slot.lock);
    info->measured_bandwidth_gbs = transport->bandwidth_gbs;
    info->measured_latency_us = transport->latency_us;
    ignis__mutex_unlock(&transport->slot.lock);
    ignis__mutex_lock(&ignis__shares.lock);
    for (entry = ignis__shares.exports; entry; entry = entry->next)
        info->exported += entry->transport == transport->serial;
    for (mapped = ignis__shares.imports; mapped; mapped = mapped->next) {
        info->imported += mapped->transport == transport->serial ? mapped->arrays : 0;
        info->mappings += mapped->transport == transport->serial;
    }
    ignis__mutex_unlock(&ignis__shares.lock);
    return ignis__transport_end_call(transport, true);
}

IGNIS_API int ignis_transport_to_string(ignis_transport handle, char *out, size_t capacity)
{
    static const char call[] = "ignis_transport_to_string";
    ignis__transport *transport = ignis__transport_hold(call, handle);
    ignis__string_writer text;
    char none[1];
    if (!transport)
        return -1;
    ignis__string_begin(&text, out ? out : none, out ? capacity : sizeof none);
    ignis__transport_describe(&text, transport);
    ignis__transport_drop(transport);
    return (int)text.length;
}

/*  >>transport.handle - handles: exporting an array

    Fills, seals and completes handles; the public functions of exporters.
    Uses: exports, records, the memory functions of the kinds.
    Invariants: every handle that is out is listed as an export, counted by its array.
    Locks: the slot of the transport; ignis__shares.lock through exports. */

static void ignis__record_fill(const ignis__transport *transport, const ignis__array *array,
                               const ignis__export_facts *facts, uint64_t name, ignis__record_of_array *record)
{
    *record = ignis__own_identity;
    record->name = name;
    record->kind = (uint32_t)transport->kind;
    record->dtype = (int32_t)array->dtype;
    record->ndim = array->shape.ndim;
    memcpy(record->dim, array->shape.dim, sizeof record->dim[0] * (size_t)array->shape.ndim);
    record->block_size = facts->block_size;
    record->offset = facts->offset;
    memcpy(record->uuid, transport->src->info.uuid, sizeof record->uuid);
    record->ipc = facts->ipc;
    memcpy(record->tag, array->tag, sizeof record->tag);
}

IGNIS__PRIVATE void ignis__record_seal(const unsigned char token[IGNIS__SECRET], const ignis__record_of_array *record,
                                       unsigned char seal[32])
{
    ignis__hmac(token, "handle", 6, record, offsetof(ignis__record_of_array, seal), seal);
}

/*  Makes the path of a named file, which is random for each process. */
IGNIS__PRIVATE bool ignis__record_path(const char *call, const ignis__transport *transport,
                                       const ignis__record_of_array *record, uint64_t name, char path[IGNIS__PATH_MAX])
{
    uint64_t maker[2];
    char folder[IGNIS__PATH_MAX];
    memcpy(maker, record->process, sizeof maker);
    memcpy(folder, transport->folder, sizeof folder);
    if (!*folder && !ignis__private_folder(call, folder, sizeof folder))
        return false;
    if (snprintf(path, IGNIS__PATH_MAX, "%s/handle-%016llx%016llx-%llu", folder, (unsigned long long)maker[0],
                 (unsigned long long)maker[1], (unsigned long long)name) < IGNIS__PATH_MAX)
        return true;
    return ignis__fail_false(IGNIS_DIAG_CHANNEL_IO, call, "the path of a handle in %s exceeds %d bytes", folder,
                             IGNIS__PATH_MAX - 1);
}

/*  Lists a handle as an export and sets the export's number in its record. The array already counts it; NULL:
    a copy. */
static bool ignis__export_register(const char *call, const ignis__transport *transport, ignis__array *array,
                                   ignis__record_of_array *record, int watch, const char *path)
{
    ignis__export *entry = (ignis__export *)ignis__alloc_for(call, sizeof *entry);
    ignis__export *other;
    ignis__string_writer text;
    if (!entry || (path && (entry->path = ignis__copy_string(path)) == NULL)) {
        if (entry)
            ignis__fail_host_memory(call, strlen(path));
        ignis__free(entry);
        return false;
    }
    entry->transport = transport->serial;
    entry->channel = transport->channel;
    entry->peer_pid = transport->peer_pid;
    entry->array = array;
    entry->watch = watch;
    ignis__string_begin(&text, entry->description, sizeof entry->description);
    ignis__transport_describe(&text, transport);
    if (transport->peer_pid)
        ignis__string_add(&text, " to process %lld", (long long)transport->peer_pid);
    ignis__mutex_lock(&ignis__shares.lock);
    entry->turn = record->serial = ++ignis__shares.serials;
    for (other = ignis__shares.exports; other; other = other->next)
        if (other->array == array && other->transport == transport->serial) {
            record->serial = other->record.serial;
            other->turn = entry->turn;
        }
    entry->record = *record;
    entry->next = ignis__shares.exports;
    ignis__shares.exports = entry;
    ignis__mutex_unlock(&ignis__shares.lock);
    return true;
}

/*  Makes the lease of a handle and lists it. A copy has no lease, only a name. */
static bool ignis__export_lease(const char *call, const ignis__transport *transport, ignis__array *array,
                                ignis__record_of_array *record, const char *path, ignis_transport_handle *handle)
{
    bool leased = ignis__transport_ops_of(transport)->zero_copy, counted;
    int ends[2] = {-1, -1};
    if (!leased && !path)
        return true;
    if (leased && !ignis__lease_make(path, ends)) {
        ignis__fail(IGNIS_DIAG_CHANNEL_IO, call, "cannot create a pipe for a lease: %s", strerror(errno));
        if (path)
            (void)ignis__file_remove(path);
        return false;
    }
    handle->has_lease = ends[1] >= 0;
    handle->lease = ends[1];
    counted = leased && ignis__array_add_export(call, array);
    if ((!leased || counted) && ignis__export_register(call, transport, leased ? array : NULL, record, ends[0], path))
        return true;
    if (counted)
        ignis__array_remove_export(call, array);
    ignis__fd_close(&ends[0]);
    if (path)
        (void)ignis__file_remove(path);
    return false;
}

IGNIS__PRIVATE bool ignis__transport_export(const char *call, ignis__transport *transport, ignis__array *array,
                                            bool wait, ignis_transport_handle *handle)
{
    const ignis__transport_ops *ops = ignis__transport_ops_of(transport);
    bool named = ops->named && !ignis__transport_carries_descriptors(transport), ok;
    uint64_t name = named ? ignis__atomic_add(&ignis__shares.names, 1) : 0;
    ignis__record_of_array record;
    char path[IGNIS__PATH_MAX];
    ignis__binding binding;
    ignis__export_facts facts;
    memset(handle, 0, sizeof *handle);
    memset(&facts, 0, sizeof facts);
    (void)ignis__exports_end(call, NULL, transport->serial, true);
    if (array->storage->device != transport->src)
        return ignis__fail_false(IGNIS_DIAG_DEVICE_DIFFERS, call,
                                 "%s is on device %d; the transport goes from device %d to device %d",
                                 ignis__array_label(array).text, ignis__device_ordinal(array->storage->device),
                                 ignis__device_ordinal(transport->src), ignis__device_ordinal(transport->dst));
    if (named && !ignis__record_path(call, transport, &ignis__own_identity, name, path))
        return false;
    facts.path = named ? path : NULL;
    if ((wait && !ignis__array_wait(call, array)) || !ignis__device_enter(call, transport->src, &binding))
        return false;
    ok = ops->export_memory(call, array, &facts);
    ignis__device_leave(&binding);
    if (!ok)
        return false;
    handle->memory = facts.memory;
    ignis__record_fill(transport, array, &facts, name, &record);
    if (!ignis__export_lease(call, transport, array, &record, facts.path, handle)) {
        ignis__handle_close(handle);
        return false;
    }
    ignis__record_seal(transport->token, &record, record.seal);
    memcpy(handle->record, &record, sizeof record);
    return true;
}

/*  Holds a transport and an array for a call. */
IGNIS__ONE_COPY IGNIS__PRIVATE ignis__array *ignis__transport_hold_both(const char *call, ignis_transport handle,
                                                                        ignis_array array_handle,
                                                                        ignis__transport **transport)
{
    ignis__array *array;
    *transport = ignis__transport_hold_ready(call, handle);
    if (!*transport)
        return NULL;
    array = ignis__array_hold(call, array_handle);
    if (!array)
        ignis__transport_drop(*transport);
    return array;
}

IGNIS__PRIVATE ignis_status ignis__transport_end_both(const char *call, ignis__transport *transport,
                                                      ignis__array *array, bool ok)
{
    ignis__array_drop(call, array);
    return ignis__transport_end_call(transport, ok);
}

IGNIS_API ignis_status ignis_transport_export_handle(ignis_transport handle, ignis_array array_handle,
                                                     ignis_transport_handle *out)
{
    static const char call[] = "ignis_transport_export_handle";
    ignis__transport *transport;
    ignis__array *array = ignis__transport_hold_both(call, handle, array_handle, &transport);
    if (!array)
        return ignis__failed();
    return ignis__transport_end_both(call, transport, array,
                                     ignis__check_not_null(call, "handle", out) &&
                                         ignis__transport_export(call, transport, array, true, out));
}

IGNIS_API ignis_status ignis_transport_exported_handle(ignis_transport handle, ignis_transport_handle *out)
{
    static const char call[] = "ignis_transport_exported_handle";
    ignis__transport *transport = ignis__transport_hold_ready(call, handle);
    ignis__array *array = NULL;
    const ignis__export *entry;
    uint64_t last = 0;
    if (!transport)
        return ignis__failed();
    if (!ignis__check_not_null(call, "handle", out))
        return ignis__transport_end_call(transport, false);
    (void)ignis__exports_end(call, NULL, transport->serial, true);
    ignis__mutex_lock(&ignis__shares.lock);
    for (entry = ignis__shares.exports; entry; entry = entry->next)
        if (entry->transport == transport->serial && entry->array && entry->turn > last) {
            array = entry->array;
            last = entry->turn;
        }
    if (array)
        ignis__atomic_add(&array->slot.state, 1); /* held by its handles */
    ignis__mutex_unlock(&ignis__shares.lock);
    if (array)
        return ignis__transport_end_both(call, transport, array,
                                         ignis__transport_export(call, transport, array, true, out));
    return ignis__transport_end_call(
        transport, ignis__fail_false(IGNIS_DIAG_TRANSPORT_HANDLE, call,
                                     "no handle of the transport is out: none was exported, or all were closed"));
}

/*  Lists which descriptors belong to a record, in order. */
IGNIS__PRIVATE int ignis__record_fds(const ignis__record_of_array *record, bool *memory)
{
    const ignis__transport_ops *ops =
        &ignis__transport_kinds[record->kind < IGNIS_TRANSPORT_KIND_COUNT ? record->kind : 0];
    *memory = !record->name && ops->descriptor;
    return *memory + (!record->name && ops->zero_copy);
}

IGNIS_API int ignis_transport_handle_fds(const ignis_transport_handle *handle, int fds[2])
{
    int count = 0;
    if (!handle || !fds)
        return 0;
    if (handle->memory.type)
        fds[count++] = ignis__vmm_handle_fd(&handle->memory);
    if (handle->has_lease)
        fds[count++] = handle->lease;
    return count;
}

/*  Completes a handle with its descriptors. False, and they are closed, if they do not match the record. */
IGNIS__PRIVATE bool ignis__handle_add_fds(ignis_transport_handle *handle, const void *bytes, const int *fds,
                                          int fd_count)
{
    ignis__record_of_array record;
    bool memory;
    int wanted;
    memset(handle, 0, sizeof *handle);
    memcpy(&record, bytes, sizeof record);
    wanted = ignis__record_fds(&record, &memory);
    if (fd_count != wanted) {
        ignis__fds_close(fds, fd_count);
        return false;
    }
    memcpy(handle->record, bytes, sizeof handle->record);
    if (memory)
        ignis__vmm_handle_set_fd(&handle->memory, fds[0]);
    handle->has_lease = wanted > memory;
    if (handle->has_lease)
        handle->lease = fds[memory];
    return true;
}

IGNIS_API ignis_status ignis_transport_handle_from_fds(ignis_transport_handle *handle, const void *record,
                                                       const int *fds, int fd_count)
{
    static const char call[] = "ignis_transport_handle_from_fds";
    if (!ignis__check_not_null(call, "handle", handle) || !ignis__check_not_null(call, "record", record) ||
        (fd_count > 0 && !ignis__check_not_null(call, "fds", fds)))
        return ignis__failed();
    if (ignis__handle_add_fds(handle, record, fds, fd_count))
        return IGNIS_OK;
    return ignis__fail(IGNIS_DIAG_COUNT_MISMATCH, call,
                       "fd_count is %d; the record needs another number of descriptors", fd_count);
}

IGNIS_API ignis_status ignis_transport_handle_close(ignis_transport_handle *handle)
{
    if (!handle)
        return IGNIS_OK;
    ignis__handle_close(handle);
    return IGNIS_OK;
}

IGNIS_API ignis_status ignis_transport_release_handle(ignis_transport handle, ignis_array array_handle)
{
    static const char call[] = "ignis_transport_release_handle";
    ignis__transport *transport;
    ignis__array *array;
    if (!array_handle.id || !handle.id)
        return IGNIS_OK;
    transport = ignis__transport_hold(call, handle);
    if (!transport)
        return ignis__failed();
    array = ignis__array_hold(call, array_handle);
    if (!array)
        return ignis__transport_end_call(transport, false);
    (void)ignis__exports_end(call, array, transport->serial, false);
    return ignis__transport_end_both(call, transport, array, true);
}

/*  >>transport.import - imports: arrays of other processes

    Checks handles, maps their memory, and wraps it in arrays; the public functions of importers.
    Uses: exports, records, the memory functions of the kinds.
    Invariants: a record is checked before any use, against what this process mapped or exported; one mapping
    for all imports of an export.
    Locks: ignis__shares.lock around the list; the import's lock while it is mapped. */

/*  Checks that the values of a sealed record are consistent; *bytes: of the array. */
IGNIS__PRIVATE bool ignis__record_is_consistent(const ignis__record_of_array *record, int64_t *bytes)
{
    bool empty = false;
    int i;
    if (record->kind == 0 || record->kind >= IGNIS_TRANSPORT_KIND_COUNT || record->dtype <= IGNIS_DTYPE_DEFAULT ||
        record->dtype >= IGNIS_DTYPE_COUNT || record->ndim < 1 || record->ndim > IGNIS_MAX_DIMS ||
        record->tag[sizeof record->tag - 1] != 0)
        return false;
    *bytes = ignis__dtypes[record->dtype].size;
    for (i = 0; i < record->ndim; i++) {
        if (record->dim[i] < 0 || (record->dim[i] > 0 && !ignis__multiply(*bytes, record->dim[i], bytes)))
            return false;
        empty = empty || record->dim[i] == 0;
    }
    *bytes = empty ? 0 : *bytes;
    return record->block_size > 0 && record->offset >= 0 && record->offset <= record->block_size &&
           record->offset % ignis__dtypes[record->dtype].size == 0 && *bytes <= record->block_size - record->offset;
}

/*  Reads and checks the record of a handle before any use. */
IGNIS__PRIVATE bool ignis__record_read(const char *call, const ignis__transport *transport,
                                       const ignis_transport_handle *handle, ignis__record_of_array *record)
{
    const ignis__record_of_array *self = &ignis__own_identity;
    int64_t bytes;
    unsigned char seal[32];
    bool memory;
    memcpy(record, handle->record, sizeof *record);
    ignis__record_seal(transport->token, record, seal);
    (void)ignis__record_fds(record, &memory);
    if (memcmp(record->magic, self->magic, sizeof record->magic) != 0)
        return ignis__fail_false(IGNIS_DIAG_TRANSPORT_RECORD, call, "handle is not a handle of a transport");
    if (record->version != IGNIS__RECORD_VERSION)
        return ignis__fail_false(IGNIS_DIAG_TRANSPORT_RECORD, call, "the handle has version %u; expected version %d",
                                 record->version, IGNIS__RECORD_VERSION);
    if (!ignis__bytes_equal(seal, record->seal, sizeof seal))
        return ignis__fail_false(IGNIS_DIAG_TRANSPORT_RECORD, call,
                                 "the seal of the handle is wrong: it was changed, or made with another token");
    if (!ignis__record_is_consistent(record, &bytes))
        return ignis__fail_false(IGNIS_DIAG_TRANSPORT_MISMATCH, call,
                                 "the handle is inconsistent: kind %u, dtype %d, %d dimensions, at %lld of %lld bytes",
                                 record->kind, record->dtype, record->ndim, (long long)record->offset,
                                 (long long)record->block_size);
    if (record->kind != (uint32_t)transport->kind)
        return ignis__fail_false(IGNIS_DIAG_TRANSPORT_STATE, call, "the handle is of kind %s, the transport of kind %s",
                                 ignis__transport_kinds[record->kind].name, ignis__transport_ops_of(transport)->name);
    if (record->host != self->host)
        return ignis__fail_false(IGNIS_DIAG_TRANSPORT_UNAVAILABLE, call,
                                 "the handle is of another machine, or older than the last start of this one");
    if (transport->peer_certain && record->pid_namespace == self->pid_namespace &&
        (int64_t)record->pid != transport->peer_pid)
        return ignis__fail_false(IGNIS_DIAG_TRANSPORT_PEER, call,
                                 "the handle is of process %u, but came from process %lld", record->pid,
                                 (long long)transport->peer_pid);
    if (!ignis__transport_ops_of(transport)->across &&
        memcmp(record->process, self->process, sizeof self->process) != 0)
        return ignis__fail_false(
            IGNIS_DIAG_TRANSPORT_UNAVAILABLE, call,
            "the handle is of process %u; peer copies work within one process: use IGNIS_TRANSPORT_VMM or _HOST",
            record->pid);
    if (memory && (!handle->memory.type || handle->memory.type != IGNIS__VMM_HANDLE_SYSTEM))
        return ignis__fail_false(IGNIS_DIAG_TRANSPORT_MISMATCH, call, "a descriptor of the handle is missing");
    return true;
}

/*  Opens the named file of a handle, unless it is open. */
IGNIS__PRIVATE bool ignis__handle_open(const char *call, const ignis__transport *transport,
                                       const ignis__record_of_array *record, ignis_transport_handle *handle)
{
    bool lease = ignis__transport_ops_of(transport)->zero_copy;
    char path[IGNIS__PATH_MAX];
    int fd;
    if (!record->name || handle->has_lease || handle->memory.type)
        return true;
    if (!ignis__record_path(call, transport, record, record->name, path))
        return false;
    fd = ignis__named_file_open(path, lease);
    if (fd < 0)
        return ignis__fail_false(
            IGNIS_DIAG_TRANSPORT_MISMATCH, call,
            "%s does not exist: the handle was taken or released before, or IGNIS_COMM_DIR differs", path);
    if (lease) {
        handle->has_lease = true;
        handle->lease = fd;
    } else {
        ignis__vmm_handle_set_fd(&handle->memory, fd);
    }
    return true;
}

/*  Finds the device of a record. NULL, and reported, if this process does not see it. */
IGNIS__PRIVATE ignis__device *ignis__record_device(const char *call, const ignis__record_of_array *record)
{
    ignis_device_info info;
    int i;
    for (i = 0; i < ignis__device_total; i++)
        if (ignis_device_query(i, &info) == IGNIS_OK && memcmp(info.uuid, record->uuid, sizeof info.uuid) == 0)
            return &ignis__devices[i];
    ignis__fail(IGNIS_DIAG_TRANSPORT_UNAVAILABLE, call,
                "the array is on a device (UUID %02x%02x%02x%02x...) that this process does not see; check "
                "CUDA_VISIBLE_DEVICES, or use "
                "IGNIS_TRANSPORT_HOST",
                record->uuid[0], record->uuid[1], record->uuid[2], record->uuid[3]);
    return NULL;
}

/*  Tells if a record is of an export of this process. *array: that array, held; NULL, and reported, if the
    record does not match it. */
static bool ignis__record_find_own(const char *call, const ignis__record_of_array *record, ignis__array **array)
{
    ignis__export *entry;
    bool found;
    *array = NULL;
    if (memcmp(record->process, ignis__own_identity.process, sizeof record->process) != 0)
        return false;
    ignis__mutex_lock(&ignis__shares.lock);
    for (entry = ignis__shares.exports; entry && (!entry->array || entry->record.serial != record->serial);
         entry = entry->next)
        ;
    found = entry != NULL;
    if (found && ignis__record_equal(&entry->record, record)) {
        *array = entry->array;
        ignis__atomic_add(&(*array)->slot.state, 1); /* held by its handles */
    }
    ignis__mutex_unlock(&ignis__shares.lock);
    if (!*array)
        ignis__fail(IGNIS_DIAG_TRANSPORT_MISMATCH, call,
                    found ? "the handle does not match the export of this process"
                          : "the array of this handle is no longer exported");
    return true;
}

/*  Maps the memory of an import. The import takes the lease of the handle. */
static bool ignis__import_map(const char *call, const ignis__transport *transport, ignis__import *mapped,
                              ignis_transport_handle *handle)
{
    const ignis__transport_ops *ops = ignis__transport_ops_of(transport);
    const ignis__record_of_array *record = &mapped->record;
    ignis__device *home = NULL;
    ignis__binding binding;
    bool ok;
    if (!ignis__handle_open(call, transport, record, handle))
        return false;
    mapped->lease = handle->has_lease ? ignis__fd_copy(handle->lease) : -1;
    ok = mapped->lease >= 0 || !handle->has_lease ||
         ignis__fail_false(IGNIS_DIAG_TRANSPORT_MISMATCH, call,
                           "the lease of the handle is not an open descriptor, or too many are open");
    if (ok && ignis__record_find_own(call, record, &mapped->own))
        ok = mapped->own != NULL;
    else
        ok = ok && (home = ignis__record_device(call, record)) != NULL;
    if (ok && ignis__device_enter(call, mapped->device, &binding)) {
        mapped->made = mapped->own ? ops->grant_access(call, mapped->own, mapped->device)
                                   : ops->import_memory(call, mapped, home, &handle->memory);
        if (mapped->own)
            mapped->address = ignis__atomic_load(&mapped->own->storage->address) + (uint64_t)mapped->own->offset -
                              (uint64_t)record->offset;
        ignis__device_leave(&binding);
    }
    if (mapped->made)
        return true;
    if (mapped->own)
        ignis__array_drop(call, mapped->own);
    mapped->own = NULL;
    ignis__fd_close(&mapped->lease);
    return false;
}

/*  Finds the import of a record, or maps a new one, and counts one more array. */
static ignis__import *ignis__import_find_or_map(const char *call, const ignis__transport *transport,
                                                const ignis__record_of_array *record, ignis_transport_handle *handle)
{
    ignis__import *mapped, *fresh = (ignis__import *)ignis__alloc_for(call, sizeof *fresh);
    bool same = true, ok;
    if (!fresh)
        return NULL;
    fresh->record = *record;
    fresh->transport = transport->serial;
    fresh->device = transport->dst;
    fresh->arrays = 1;
    fresh->lease = -1;
    ignis__mutex_init(&fresh->lock);
    ignis__mutex_lock(&ignis__shares.lock);
    for (mapped = ignis__shares.imports; mapped; mapped = mapped->next)
        if (mapped->transport == transport->serial && mapped->record.serial == record->serial &&
            memcmp(mapped->record.process, record->process, sizeof record->process) == 0)
            break;
    if (!mapped) {
        fresh->next = ignis__shares.imports;
        ignis__shares.imports = fresh;
    } else {
        same = ignis__record_equal(&mapped->record, record);
        mapped->arrays += same;
    }
    ignis__mutex_unlock(&ignis__shares.lock);
    if (mapped)
        ignis__free(fresh);
    else
        mapped = fresh;
    if (!same) {
        ignis__fail(IGNIS_DIAG_TRANSPORT_MISMATCH, call, "the handle contradicts an earlier handle of its array");
        return NULL;
    }
    ignis__mutex_lock(&mapped->lock); /* the first thread maps; if that fails, the next one tries */
    ok = mapped->made || ignis__import_map(call, transport, mapped, handle);
    ignis__mutex_unlock(&mapped->lock);
    if (ok)
        return mapped;
    ignis__import_drop(call, mapped);
    return NULL;
}

/*  Creates an array over the import of a checked record. */
IGNIS__PRIVATE ignis_array ignis__import_array(const char *call, const ignis__transport *transport,
                                               const ignis__record_of_array *record, ignis_transport_handle *handle)
{
    ignis_array result = IGNIS__ZERO;
    ignis__import *mapped;
    ignis_array_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.shape.ndim = record->ndim;
    memcpy(desc.shape.dim, record->dim, sizeof record->dim[0] * (size_t)record->ndim);
    desc.dtype = (ignis_dtype)record->dtype;
    desc.device = ignis__device_in_desc(transport->dst);
    desc.tag = record->tag;
    if (!ignis__transport_ops_of(transport)->zero_copy)
        return ignis__array_create(call, &desc);
    mapped = ignis__import_find_or_map(call, transport, record, handle);
    if (!mapped)
        return result;
    result = ignis__vmm_wrap(call, transport->dst, mapped->address + (uint64_t)record->offset, &desc,
                             ignis__import_release, mapped);
    if (!result.id)
        ignis__import_drop(call, mapped);
    return result;
}

/*  Copies the content of a handle into an array of its size: from host memory, or from the sender's array. */
IGNIS__PRIVATE bool ignis__handle_copy(const char *call, const ignis__transport *transport,
                                       const ignis__record_of_array *record, ignis_transport_handle *handle,
                                       ignis__array *array)
{
    ignis__array *own;
    bool ok;
    if (!ignis__handle_open(call, transport, record, handle))
        return false;
    if (transport->kind == IGNIS_TRANSPORT_HOST) {
        int fd = ignis__vmm_handle_fd(&handle->memory);
        if (ignis__fd_size_is(fd, record->block_size))
            return ignis__host_copy(call, array, fd, true);
        return ignis__fail_false(IGNIS_DIAG_TRANSPORT_MISMATCH, call,
                                 "the descriptor is not shared host memory of %lld bytes",
                                 (long long)record->block_size);
    }
    if (!ignis__record_find_own(call, record, &own) || !own) /* handles of other processes were refused before */
        return false;
    ok = own->storage->device == array->storage->device ? ignis__array_convert(call, array, own)
                                                        : ignis__array_copy_peer(call, array, own);
    ignis__array_drop(call, own);
    return ok;
}

static ignis_array ignis__transport_import(const char *call, ignis_transport transport_handle,
                                           const ignis_transport_handle *handle)
{
    ignis__transport *transport = ignis__transport_hold_ready(call, transport_handle);
    ignis_array result = IGNIS__ZERO;
    ignis_transport_handle opened;
    ignis__record_of_array record;
    ignis__array *array;
    if (!transport)
        return result;
    if (ignis__check_not_null(call, "handle", handle) && ignis__record_read(call, transport, handle, &record)) {
        opened = *handle;
        result = ignis__import_array(call, transport, &record, &opened);
        if (result.id && !ignis__transport_ops_of(transport)->zero_copy) {
            array = ignis__array_hold(call, result);
            if (array && !ignis__handle_copy(call, transport, &record, &opened, array)) {
                ignis__array_free_as(call, result, IGNIS_OWNER_IGNIS);
                result.id = 0;
            }
            if (array)
                ignis__array_drop(call, array);
        }
        if (!handle->has_lease && !handle->memory.type)
            ignis__handle_close(&opened); /* opened by its name above */
    }
    ignis__transport_drop(transport);
    return result;
}

IGNIS_API ignis_array ignis_transport_import_handle(ignis_transport transport, const ignis_transport_handle *handle)
{
    return ignis__transport_import("ignis_transport_import_handle", transport, handle);
}

IGNIS_API ignis_array ignis_transport_recv_with_handle(ignis_transport transport, const ignis_transport_handle *handle)
{
    return ignis__transport_import("ignis_transport_recv_with_handle", transport, handle);
}

IGNIS_API ignis_status ignis_transport_close_imported_handle(ignis_transport transport_handle, ignis_array handle)
{
    static const char call[] = "ignis_transport_close_imported_handle";
    ignis__transport *transport;
    ignis__array *array = ignis__transport_hold_both(call, transport_handle, handle, &transport);
    bool ours;
    if (!array)
        return ignis__failed();
    ours = ignis__transport_ops_of(transport)->zero_copy ? ignis__array_imported_by(array, transport->serial)
                                                         : array->storage->device == transport->dst;
    if (!ours)
        ignis__fail(IGNIS_DIAG_TRANSPORT_STATE, call, "%s was not imported by this transport",
                    ignis__array_label(array).text);
    return ignis__transport_end_both(call, transport, array,
                                     ours && ignis__array_free_as(call, handle, ignis__array_owner(array)) == IGNIS_OK);
}

/*  >>transport.send_receive - sending and receiving arrays

    A handle goes to the caller, through the channel, or to a receive of this process.
    Uses: handles, imports, channels.
    Invariants: a handle that cannot be delivered is closed.
    Locks: the slot of the transport around waiting handles. */

/*  Sends a handle through a channel, as one message. */
IGNIS__PRIVATE bool ignis__handle_send(const char *call, ignis_channel to, const ignis_transport_handle *handle)
{
    ignis__channel *channel = ignis__channel_hold(call, to);
    int fds[2], count = ignis_transport_handle_fds(handle, fds);
    ignis__peer_error error;
    bool ok;
    if (!channel)
        return false;
    ok = ignis__channel_send_message(&error, channel->connection, IGNIS__MESSAGE_ARRAY, handle->record,
                                     sizeof handle->record, fds, count, -1) ||
         ignis__peer_error_report(call, &error) == IGNIS_OK;
    ignis__channel_drop(channel);
    return ok;
}

/*  Takes the handle in the inbox; the next message can follow. */
static bool ignis__inbox_handle(const char *call, ignis__connection *connection, ignis_transport_handle *handle)
{
    uint32_t size = ignis__message_header_read(connection).size;
    int count = connection->inbox_fd_count;
    bool ok = size == sizeof handle->record;
    if (ignis__message_header_read(connection).type != IGNIS__MESSAGE_ARRAY)
        return ignis__fail_false(IGNIS_DIAG_BAD_NUMBER, call,
                                 "the next item is a message; receive it with ignis_channel_receive");
    if (ok) {
        ok = ignis__handle_add_fds(handle, connection->inbox + sizeof(ignis__message_header), connection->inbox_fds,
                                   count);
        connection->inbox_fd_count = 0; /* the handle owns them now */
    }
    ignis__inbox_remove(connection);
    return ok || ignis__fail_false(IGNIS_DIAG_TRANSPORT_RECORD, call,
                                   "the message is not a handle: %u bytes and %d descriptors", size, count);
}

/*  Waits for the next handle from a channel. */
IGNIS__PRIVATE bool ignis__handle_receive(const char *call, ignis_channel from, ignis_transport_handle *handle)
{
    ignis__channel *channel = ignis__channel_hold(call, from);
    ignis__peer_error error;
    bool ok;
    if (!channel)
        return false;
    ok = ignis__connection_receive_next(&error, channel->connection, -1) ||
         ignis__peer_error_report(call, &error) == IGNIS_OK;
    if (ok) {
        ok = ignis__inbox_handle(call, channel->connection, handle);
        ignis__mutex_unlock(&channel->connection->receive_lock);
    }
    ignis__channel_drop(channel);
    return ok;
}

/*  Queues a handle for the next receive of this process. On failure the handle is closed. */
static bool ignis__transport_queue_handle(const char *call, ignis__transport *transport, ignis_transport_handle *handle)
{
    ignis__queued_handle *waiting =
        transport->channel.id ? NULL : (ignis__queued_handle *)ignis__alloc_for(call, sizeof *waiting);
    bool ok = transport->channel.id && ignis__handle_send(call, transport->channel, handle);
    if (!waiting) {
        ignis__handle_close(handle);
        return ok;
    }
    waiting->handle = *handle;
    ignis__mutex_lock(&transport->slot.lock);
    *transport->waiting_end = waiting;
    transport->waiting_end = &waiting->next;
    ignis__mutex_unlock(&transport->slot.lock);
    return true;
}

/*  Returns the next handle and its checked record. */
static bool ignis__transport_next_handle(const char *call, ignis__transport *transport, ignis_transport_handle *handle,
                                         ignis__record_of_array *record)
{
    int64_t deadline = ignis__monotonic_ns() + transport->timeout_ns;
    bool ok = false;
    memset(handle, 0, sizeof *handle);
    if (transport->channel.id) {
        ok = ignis__handle_receive(call, transport->channel, handle);
    } else {
        while (!(ok = ignis__queued_handle_take(transport, handle)) && ignis__monotonic_ns() < deadline &&
               ignis__pool_live(transport))
            ignis__sleep_us(200);
        if (!ok)
            ignis__fail(IGNIS_DIAG_CHANNEL_TIMEOUT, call, "nothing was sent for %.3g s",
                        (double)transport->timeout_ns * 1e-9);
    }
    if (ok && ignis__record_read(call, transport, handle, record) &&
        ignis__handle_open(call, transport, record, handle))
        return true;
    ignis__handle_close(handle);
    return false;
}

static ignis_status ignis__transport_send(const char *call, ignis_transport transport_handle, ignis_array array_handle,
                                          ignis_transport_handle *out, bool wait)
{
    ignis__transport *transport;
    ignis__array *array = ignis__transport_hold_both(call, transport_handle, array_handle, &transport);
    const ignis__transport_ops *ops;
    ignis_transport_handle handle;
    bool ok = false;
    if (!array)
        return ignis__failed();
    ops = ignis__transport_ops_of(transport);
    if (!out && !transport->channel.id && !ops->copies)
        ignis__fail(IGNIS_DIAG_TRANSPORT_HANDLE, call,
                    "%s sends a handle: pass `handle`, or create the transport with a channel", ops->name);
    else if (!out && transport->channel.id && !ops->named && !ignis__transport_carries_descriptors(transport))
        ignis__fail(
            IGNIS_DIAG_CHANNEL_DESCRIPTOR, call,
            "memory of %s travels as a descriptor, which a channel by %s cannot carry; use IGNIS_CHANNEL_SOCKET, "
            "IGNIS_TRANSPORT_IPC or IGNIS_TRANSPORT_HOST",
            ops->name, ignis__method_names[transport->exchange]);
    else
        ok = ignis__transport_export(call, transport, array, wait, out ? out : &handle) &&
             (out || ignis__transport_queue_handle(call, transport, &handle));
    return ignis__transport_end_both(call, transport, array, ok);
}

IGNIS_API ignis_status ignis_transport_send(ignis_transport transport, ignis_array array,
                                            ignis_transport_handle *handle)
{
    return ignis__transport_send("ignis_transport_send", transport, array, handle, true);
}

IGNIS_API ignis_status ignis_transport_send_async(ignis_transport transport, ignis_array array,
                                                  ignis_transport_handle *handle)
{
    return ignis__transport_send("ignis_transport_send_async", transport, array, handle, false);
}

IGNIS_API ignis_status ignis_transport_receive_handle(ignis_transport transport_handle, ignis_transport_handle *handle)
{
    static const char call[] = "ignis_transport_receive_handle";
    ignis__transport *transport = ignis__transport_hold_ready(call, transport_handle);
    ignis__record_of_array record;
    bool ok;
    if (!transport)
        return ignis__failed();
    ok = ignis__check_not_null(call, "handle", handle) &&
         (transport->channel.id ||
          ignis__fail_false(IGNIS_DIAG_TRANSPORT_STATE, call, "the transport has no channel to receive from")) &&
         ignis__transport_next_handle(call, transport, handle, &record);
    return ignis__transport_end_call(transport, ok);
}

static ignis_status ignis__transport_recv(const char *call, ignis_transport transport_handle, ignis_array array_handle,
                                          bool wait)
{
    ignis__transport *transport;
    ignis__array *array = ignis__transport_hold_both(call, transport_handle, array_handle, &transport);
    ignis_transport_handle handle;
    ignis__record_of_array record;
    int64_t bytes = 0;
    bool ok = false;
    if (!array)
        return ignis__failed();
    if (!ignis__transport_ops_of(transport)->copies) {
        ignis__fail(IGNIS_DIAG_TRANSPORT_HANDLE, call,
                    "%s copies nothing: receive the sender's array with "
                    "ignis_transport_recv_with_handle",
                    ignis__transport_ops_of(transport)->name);
    } else if (array->storage->device != transport->dst) {
        ignis__fail(IGNIS_DIAG_DEVICE_DIFFERS, call, "%s is on device %d; the transport goes to device %d",
                    ignis__array_label(array).text, ignis__device_ordinal(array->storage->device),
                    ignis__device_ordinal(transport->dst));
    } else if (ignis__transport_next_handle(call, transport, &handle, &record)) {
        ignis__record_is_consistent(&record, &bytes);
        if (record.dtype != (int32_t)array->dtype)
            ignis__fail(IGNIS_DIAG_DTYPE_DIFFERS, call, "%s is %s; the sent array is %s",
                        ignis__array_label(array).text, ignis__dtypes[array->dtype].name,
                        ignis__dtypes[record.dtype].name);
        else if (bytes != ignis__array_bytes(array))
            ignis__fail(IGNIS_DIAG_SHAPE_DIFFERS, call, "%s %s has %lld bytes; the sent array has %lld",
                        ignis__array_label(array).text, ignis__shape_write(&array->shape).text,
                        (long long)ignis__array_bytes(array), (long long)bytes);
        else
            ok = ignis__handle_copy(call, transport, &record, &handle, array) &&
                 (!wait || ignis__array_wait(call, array));
        ignis__handle_close(&handle);
        (void)ignis__exports_end(call, NULL, transport->serial, true);
    }
    return ignis__transport_end_both(call, transport, array, ok);
}

IGNIS_API ignis_status ignis_transport_recv(ignis_transport transport, ignis_array array)
{
    return ignis__transport_recv("ignis_transport_recv", transport, array, true);
}

IGNIS_API ignis_status ignis_transport_recv_async(ignis_transport transport, ignis_array array)
{
    return ignis__transport_recv("ignis_transport_recv_async", transport, array, false);
}

IGNIS_API ignis_status ignis_transport_synchronize(ignis_transport handle)
{
    static const char call[] = "ignis_transport_synchronize";
    ignis__transport *transport = ignis__transport_hold_ready(call, handle);
    uint64_t mask;
    if (!transport)
        return ignis__failed();
    mask = (uint64_t)1 << (transport->src - ignis__devices) | (uint64_t)1 << (transport->dst - ignis__devices);
    return ignis__transport_end_call(transport, !ignis__capture_refuses(call) && ignis__devices_wait(call, mask));
}

/*  >>transport.measure - measuring bandwidth and latency

    Times sends and receives of two sizes; for kinds without copies, copies from the imported array.
    Uses: the public functions of transports.
    Locks: none of its own. */

/*  Returns the nanoseconds of `count` copies; -1 on failure. */
static int64_t ignis__measure_copies(const char *call, ignis__transport *transport, ignis__array *src,
                                     ignis__array *seen, ignis__array *dst, int count)
{
    int64_t started = ignis__monotonic_ns();
    ignis_transport_handle handle;
    ignis__record_of_array record;
    bool ok = true;
    for (; ok && count > 0; count--) {
        if (seen) {
            ok = ignis__array_convert(call, dst, seen);
        } else if ((ok = ignis__transport_export(call, transport, src, false, &handle)) != false) {
            ok = ignis__record_read(call, transport, &handle, &record) &&
                 ignis__handle_copy(call, transport, &record, &handle, dst);
            ignis__handle_close(&handle);
        }
    }
    return ok && ignis__array_wait(call, dst) ? ignis__monotonic_ns() - started : -1;
}

/*  Returns the nanoseconds of one copy of `bytes`; -1 on failure. */
static int64_t ignis__measure_size(const char *call, ignis__transport *transport, int64_t bytes, int count)
{
    bool zero_copy = ignis__transport_ops_of(transport)->zero_copy, ok;
    ignis__array *arrays[3] = {NULL, NULL, NULL};
    ignis_transport_handle handle;
    ignis__record_of_array record;
    ignis_array handles[3];
    int64_t ns = -1;
    int i;
    memset(handles, 0, sizeof handles);
    handles[0] =
        ignis__array_zeroed(call, transport->src, IGNIS_U8, bytes, NULL, transport->kind == IGNIS_TRANSPORT_VMM);
    handles[1] = ignis__array_zeroed(call, transport->dst, IGNIS_U8, bytes, NULL, false);
    ok = handles[0].id && handles[1].id && ignis__array_hold_all(call, 2, handles, arrays);
    if (ok && zero_copy && (ok = ignis__transport_export(call, transport, arrays[0], true, &handle)) != false) {
        if (ignis__record_read(call, transport, &handle, &record))
            handles[2] = ignis__import_array(call, transport, &record, &handle);
        ok = handles[2].id && (arrays[2] = ignis__array_hold(call, handles[2])) != NULL;
        ignis__handle_close(&handle);
    }
    ok = ok && ignis__array_wait(call, arrays[0]) && ignis__array_wait(call, arrays[1]) &&
         ignis__measure_copies(call, transport, arrays[0], arrays[2], arrays[1], 2) >= 0; /* warm up */
    if (ok)
        ns = ignis__measure_copies(call, transport, arrays[0], arrays[2], arrays[1], count);
    for (i = 2; i >= 0; i--) {
        if (arrays[i])
            ignis__array_drop(call, arrays[i]);
        if (handles[i].id)
            ignis__array_free_as(call, handles[i], IGNIS_OWNER_IGNIS);
    }
    return ns < 0 ? -1 : ns / count;
}

IGNIS_API IGNIS__COLD ignis_status ignis_transport_measure(ignis_transport handle, int64_t bytes)
{
    static const char call[] = "ignis_transport_measure";
    /* a copy of the transport, without a channel */
    ignis__transport *transport = ignis__transport_hold_ready(call, handle), alone;
    int64_t large_ns = -1, small_ns = -1;
    if (!transport)
        return ignis__failed();
    memset(&alone, 0, sizeof alone);
    /* within one process both are the same */
    alone.kind = transport->kind == IGNIS_TRANSPORT_IPC ? IGNIS_TRANSPORT_PEER : transport->kind;
    alone.src = transport->src;
    alone.dst = transport->dst;
    alone.exchange = IGNIS__EXCHANGE_SYSTEM;
    alone.serial = ignis__atomic_add(&ignis__shares.transports, 1);
    bytes = bytes ? bytes : (int64_t)64 << 20;
    if (bytes < 0)
        ignis__fail(IGNIS_DIAG_BAD_NUMBER, call, "bytes is %lld; expected 0 or more", (long long)bytes);
    else if (!ignis__capture_refuses(call))
        large_ns = ignis__measure_size(call, &alone, bytes, 8);
    if (large_ns >= 0)
        small_ns = ignis__measure_size(call, &alone, 4, 20);
    if (small_ns >= 0) {
        ignis__mutex_lock(&transport->slot.lock);
        transport->bandwidth_gbs = (double)bytes / (double)(large_ns ? large_ns : 1);
        transport->latency_us = (double)small_ns * 1e-3;
        ignis__mutex_unlock(&transport->slot.lock);
    }
    return ignis__transport_end_call(transport, small_ns >= 0);
}

/*  >>share - arrays that two processes use through a channel

    Sends and receives an array and its lease as one message, by a transport of the kind VMM that lasts for the call.
    Uses: transports, channels.
    Invariants: the token is 0, since the channel has authenticated the peer.
    Locks: those of channels and exports. */

/*  Holds a channel that carries descriptors, and fills a transport of the kind VMM for it. */
static ignis__channel *ignis__share_begin(const char *call, ignis_channel handle, ignis__transport *transport)
{
    ignis__channel *channel = ignis__channel_hold_as(call, handle, false);
    memset(transport, 0, sizeof *transport);
    if (!channel)
        return NULL;
    transport->kind = IGNIS_TRANSPORT_VMM;
    transport->exchange = channel->connection->kind->method;
    transport->peer_pid = channel->connection->peer_pid;
    transport->peer_certain = channel->connection->peer_pid != 0; /* from a socket or a Windows pipe */
    transport->serial = ignis__atomic_add(&ignis__shares.transports, 1);
    if (!channel->connection->kind->descriptors)
        ignis__fail(IGNIS_DIAG_CHANNEL_DESCRIPTOR, call,
                    "a channel by %s cannot carry descriptors, which shared arrays need; use IGNIS_CHANNEL_SOCKET",
                    ignis__method_names[channel->connection->kind->method]);
    else if (ignis__transports_prepare(call))
        return channel;
    ignis__channel_drop(channel);
    return NULL;
}

IGNIS_API ignis_status ignis_share_send(ignis_channel handle, ignis_array array_handle)
{
    static const char call[] = "ignis_share_send";
    ignis__transport transport;
    ignis_transport_handle sent;
    ignis__channel *channel = ignis__share_begin(call, handle, &transport);
    ignis__array *array = channel ? ignis__array_hold(call, array_handle) : NULL;
    bool ok = false;
    if (array) {
        transport.src = transport.dst = array->storage->device;
        if (ignis__transport_export(call, &transport, array, true, &sent)) {
            ok = ignis__handle_send(call, handle, &sent);
            ignis__handle_close(&sent);
            if (!ok)
                (void)ignis__exports_end(call, NULL, transport.serial, false);
        }
        ignis__array_drop(call, array);
    }
    if (channel)
        ignis__channel_drop(channel);
    return ok ? IGNIS_OK : ignis__failed();
}

IGNIS_API ignis_array ignis_share_receive(ignis_channel handle)
{
    static const char call[] = "ignis_share_receive";
    ignis_array result = IGNIS__ZERO;
    ignis__transport transport;
    ignis__record_of_array record;
    ignis_transport_handle came;
    ignis__channel *channel = ignis__share_begin(call, handle, &transport);
    if (!channel)
        return result;
    if (ignis__handle_receive(call, handle, &came)) {
        if (ignis__record_read(call, &transport, &came, &record)) {
            transport.dst = ignis__record_device(call, &record);
            if (transport.dst)
                result = ignis__import_array(call, &transport, &record, &came);
        }
        ignis__handle_close(&came);
    }
    ignis__channel_drop(channel);
    return result;
}

/*  collective/comm - communicators and collective operations. */

/*  collective/job - the processes of one program: how they meet, and which of them died. */

/*  The rank of this process, and where the ranks meet: from the description or the environment. */
enum { IGNIS__JOB_MAX_RANKS = 1024 };

typedef struct ignis__place {
    int rank, size;
    int local_rank;    /* -1: unknown */
    char job[160];     /* the launcher's name of the job; "": none */
    char folder[256];  /* a private folder; "": the default */
    char name[64];     /* of rank 0 in that folder */
    char address[300]; /* "host:port" of rank 0; "": they meet in the folder */
    bool by_id;        /* from ignis_comm_unique_id */
    bool has_secret;   /* known to all ranks; else it is in the folder */
    unsigned char secret[IGNIS__SECRET];
} ignis__place;

/*  Content of an id. */
typedef struct ignis__id {
    char magic[8];
    unsigned char secret[IGNIS__SECRET];
    char address[IGNIS_COMM_ID_BYTES - 8 - IGNIS__SECRET]; /* "host,host:port"; on Windows, of a pipe */
} ignis__id;

/*  The description of a rank that all ranks receive. */
typedef struct ignis__job_rank {
    uint64_t host;    /* hash of the system and its namespaces */
    uint64_t process; /* random, since ranks may be threads of one process */
    unsigned char uuid[16];
    char pci[16];
    int32_t rank, size;
    int32_t pid, uid;
    int32_t driver;
    int32_t transport;    /* requested transport */
    int32_t heartbeat_ms; /* requested limit of silence; 0: none */
    uint64_t origin;      /* of the job that it comes from; 0: it joins now */
    char path[104];       /* of the socket where it waits for ranks of its host */
    char failed[128];     /* why it cannot take part, so that all fail; "": it can */
} ignis__job_rank;

/*  Events that a communicator is told, on the watcher's thread, with the job locked. */
typedef enum ignis__job_event {
    IGNIS__JOB_DIED,
    IGNIS__JOB_LEFT,
    IGNIS__JOB_ABORTED,
    IGNIS__JOB_FAILED, /* an operation, as another rank reports: with what broke it, and the member at fault or -1 */
    IGNIS__JOB_TICK    /* time has passed; no member */
} ignis__job_event;

enum { IGNIS__JOB_TICK_MS = 20 };

typedef struct ignis__job_watch {
    uint64_t key; /* of the communicator, the same on all its ranks */
    const int *member;
    int count;
    unsigned char *gone; /* for each member: it has destroyed its communicator */
    bool ticks;          /* it is told that time passes */
    void (*notify)(void *owner, ignis__job_event event, int member, int code); /* code: of FAILED */
    void *owner;
    struct ignis__job_watch *next;
} ignis__job_watch;

typedef struct ignis__job ignis__job;

typedef enum ignis__job_state { IGNIS__JOB_ALIVE, IGNIS__JOB_GONE, IGNIS__JOB_DEAD } ignis__job_state;

/*  Why an agreement failed. */
typedef enum ignis__agreement_reason {
    IGNIS__AGREEMENT_LATE,   /* a record did not come before the deadline */
    IGNIS__AGREEMENT_LOST,   /* a rank has died or left */
    IGNIS__AGREEMENT_DIFFERS /* a rank has called something else */
} ignis__agreement_reason;

typedef struct ignis__agreement_failure {
    ignis__agreement_reason reason;
    int rank; /* of the job */
    uint32_t theirs;
} ignis__agreement_failure;

/*  What ranks agree on. A later kind counts more: a rank in it has given up the earlier ones. */
typedef enum ignis__agreement_kind {
    IGNIS__AGREEMENT_INIT,
    IGNIS__AGREEMENT_NCCL,
    IGNIS__AGREEMENT_WINDOW,
    IGNIS__AGREEMENT_SPLIT,
    IGNIS__AGREEMENT_SHRINK,
    IGNIS__AGREEMENT_KIND_COUNT
} ignis__agreement_kind;

/*  An agreement: in each step every rank gives a record and receives those of all. A rank that gave up begins
    again, so attempts are counted. Records of earlier attempts are dropped; one of a later attempt makes all
    others join it. */
typedef struct ignis__agreement {
    ignis__job *job;
    const ignis__job_watch *watch; /* their communicator: ranks that have left it are not waited for; NULL: none */
    const int *member;             /* ranks in the job */
    int count, me;
    const unsigned char *without; /* a bit for each rank that is told but not waited for; NULL: none */
    uint64_t key;                 /* of the communicator */
    uint32_t attempt;
    uint32_t print; /* kind, and 28 bits of a hash that must be equal on all ranks */
    bool failed;    /* in the last step */
    bool overtaken; /* another rank is at a later attempt, which is now `attempt` */
    int64_t deadline;
    unsigned char came[IGNIS__JOB_MAX_RANKS / 8]; /* a bit for each rank whose record of this step has come */
    ignis__agreement_failure failure;
} ignis__agreement;

#define IGNIS__AGREEMENT_GIVEN_UP 0xFFFFFFFFu /* instead of a print: the rank has given up this attempt */
#define IGNIS__AGREEMENT_PRINT(kind, hash) ((uint32_t)(kind) << 28 | ((uint32_t)(hash)&0xFFFFFFFu))

/*  Types of messages. */
typedef enum ignis__job_kind {
    IGNIS__JOB_RECORD = 1, /* for an agreement */
    IGNIS__JOB_LEAVE,      /* the sender has destroyed communicator `key` */
    IGNIS__JOB_ABORT,      /* the sender has aborted it */
    IGNIS__JOB_FAULT,      /* an operation of it has failed; the data is an ignis__job_fault */
    IGNIS__JOB_BYE,        /* the sender has destroyed all, and will close its sockets */
    IGNIS__JOB_LOST,       /* from rank 0: the rank in the data, of another host, has died */
    IGNIS__JOB_ANSWER,     /* of a rendezvous, as the next one */
    IGNIS__JOB_TABLE,
    IGNIS__JOB_BEAT /* the sender lives */
} ignis__job_kind;

enum {
    IGNIS__JOB_DATA = 512, /* bytes of a record */
    IGNIS__JOB_BEATS = 5   /* in the limit of silence */
};

#define IGNIS__MILLISECOND ((int64_t)1000000)

/*  The cause of a broken communicator: a code that its ranks know, and the rank of the job at fault (-1: unknown). */
typedef struct ignis__job_fault {
    int32_t code, rank;
} ignis__job_fault;

/*  Connections that one thread waits for, and a pipe or event by which other threads wake it. */
typedef struct ignis__poller {
    ignis__connection **connection; /* NULL: none */
    bool *is_ready;                 /* a message has come, or the connection has ended */
    int count;
#ifdef _WIN32
    HANDLE bell;
    int pause_ms;
#else
    int bell[2];
    struct pollfd *polls;
#endif
} ignis__poller;

#ifdef _WIN32
/*  All ranks are on this host. */
#define IGNIS__CONNECTION_FAR (&ignis__connection_pipe)
#define IGNIS__OTHER_HOSTS "on Windows all ranks are on one host"
#endif

#ifndef _WIN32
#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#endif

#ifndef _WIN32
#ifndef IGNIS__JOB_SILENCE_S
#define IGNIS__JOB_SILENCE_S 15
#endif
#endif

#ifndef _WIN32
#define IGNIS__CONNECTION_FAR (&ignis__connection_tcp)
#define IGNIS__OTHER_HOSTS "those of other hosts need IGNIS_COMM_TOKEN or desc.id"
#endif

/*  The header of a job's message. */
typedef struct ignis__job_header {
    int32_t from, to;
    uint64_t key;
} ignis__job_header;

typedef struct ignis__job_message {
    struct ignis__job_message *next;
    uint64_t key;
    size_t size;
    int fd;
    unsigned char data[IGNIS__JOB_DATA];
} ignis__job_message;

typedef struct ignis__job_link {
    ignis__connection *connection; /* NULL: this rank, or a rank reached through rank 0 */
    bool ended;                    /* no more messages will come */
    ignis__job_state state;
    ignis__job_message *first;
    int queued;
    uint64_t heard; /* a message has come since the last heartbeat */
    int silent;     /* heartbeats without a message; the watcher alone has it */
} ignis__job_link;

struct ignis__job {
    uint64_t users;     /* communicators that use the job */
    uint64_t key;       /* of the job, chosen by rank 0 */
    uint64_t origin;    /* the key of the first job of a training that has grown since */
    ignis__place place; /* where the ranks met */
    int rank, size;
    int64_t timeout_ns;
    unsigned char secret[IGNIS__SECRET]; /* of the ranks of a host, chosen by rank 0 */
    ignis__job_rank *ranks;
    ignis__job_link *links; /* NULL if there is one rank */
    ignis__poller poller;   /* of the watcher */
    ignis__mutex lock;      /* guards what follows, and the links */
    ignis__condition changed;
    bool has_poller, ready; /* poller and changed exist */
    bool watched, ending;
    ignis__thread_handle watcher;
    ignis__job_watch *watches;
};

/*  A message to send. */
typedef struct ignis__job_outgoing {
    ignis__job_header header;
    ignis__job_kind kind;
    const void *data;
    size_t size;
    int fd; /* -1: none */
} ignis__job_outgoing;


/*  Values of NCCL's enumerations; tests/base/prototypes.cpp compares them with nccl.h. */
enum {
    IGNIS__NCCL_SUCCESS = 0,
    IGNIS__NCCL_IN_PROGRESS = 7,
    IGNIS__NCCL_ABORTED = -1, /* not a value of NCCL: ignis__nccl_abort was called */
    IGNIS__NCCL_LATE = -2,    /* not a value of NCCL: the deadline has passed */
    IGNIS__NCCL_VERSION_LEAST = 21900,
    IGNIS__NCCL_UINT8 = 1,
    IGNIS__NCCL_INT32 = 2,
    IGNIS__NCCL_INT64 = 4,
    IGNIS__NCCL_FLOAT16 = 6,
    IGNIS__NCCL_FLOAT32 = 7,
    IGNIS__NCCL_FLOAT64 = 8,
    IGNIS__NCCL_BFLOAT16 = 9,
    IGNIS__NCCL_FLOAT8_E4M3 = 10, /* from NCCL 2.24 on */
    IGNIS__NCCL_FLOAT8_E5M2 = 11,
    IGNIS__NCCL_SUM = 0,
    IGNIS__NCCL_PROD = 1,
    IGNIS__NCCL_MAX = 2,
    IGNIS__NCCL_MIN = 3,
    IGNIS__NCCL_AVG = 4
};

/*  ncclConfig_t of NCCL 2.19; its version tells newer ones which fields are missing. */
typedef struct ignis__nccl_config {
    size_t size;
    unsigned magic, version;
    int blocking, cluster_size, least_blocks, most_blocks;
    const char *net_name;
    int split_share;
} ignis__nccl_config;

typedef enum ignis__comm_kind {
    IGNIS__COMM_ALL_REDUCE = 1,
    IGNIS__COMM_REDUCE,
    IGNIS__COMM_BROADCAST,
    IGNIS__COMM_ALL_GATHER,
    IGNIS__COMM_REDUCE_SCATTER,
    IGNIS__COMM_ALL_TO_ALL,
    IGNIS__COMM_SEND,
    IGNIS__COMM_RECV,
    IGNIS__COMM_BARRIER,
    IGNIS__COMM_KIND_COUNT
} ignis__comm_kind;

/*  A checked operation. A slice is what a rank sends to or gets from each other one. */
typedef struct ignis__comm_task {
    ignis__comm_kind kind;
    ignis__address in, out;
    int64_t count; /* elements of a slice */
    ignis_dtype dtype;
    ignis_op op;
    int root; /* for a message, the other rank */
} ignis__comm_task;

/*  An NCCL communicator of one rank. It is nonblocking: each call returns at once, and is waited for with a
    deadline. */
typedef struct ignis__nccl_comm {
    ignis__mutex lock; /* NCCL allows one call at a time; ignis__nccl_abort comes from other threads */
    void *comm;        /* NULL: aborted */
    void *ending;      /* what the reaper ends; NULL: there is no reaper */
    bool aborts;       /* the reaper aborts it, else destroys it */
    ignis__thread_handle reaper;
    uint64_t users; /* the reaper is the second */
    ignis__device *device;
    int64_t patience_ns; /* the longest time of a call */
    bool hosts;          /* some ranks are on other hosts */
} ignis__nccl_comm;

/*  The layout of a rank's region, and the structs of the kernels of communicators; kernels/collective.cuh explains the
    protocol. */
#ifndef IGNIS__COMM_DATA_MIB
#define IGNIS__COMM_DATA_MIB 24
#endif

enum {
    IGNIS__COMM_BLOCKS = 256, /* of a kernel, at most */
    IGNIS__COMM_LANES = 64,   /* blocks of one direction of a pair, at most */
    IGNIS__COMM_FLAGS = 4096, /* offsets into the region, and sizes of its buffers; control is at 0 */
    IGNIS__COMM_PAIRS = IGNIS__COMM_FLAGS + 4 * IGNIS__COMM_BLOCKS * 128,
    IGNIS__COMM_PACKETS = 1 << 18,
    IGNIS__COMM_PACKETS_SIZE = 4 << 20, /* of one set and phase */
    IGNIS__COMM_DATA = IGNIS__COMM_PACKETS + 4 * IGNIS__COMM_PACKETS_SIZE,
    IGNIS__COMM_DATA_SIZE = IGNIS__COMM_DATA_MIB << 20, /* of one set and phase */
    IGNIS__COMM_PAIR_DATA = IGNIS__COMM_DATA + 4 * IGNIS__COMM_DATA_SIZE,
    IGNIS__COMM_PAIR_SLOT = 16 << 10,
    IGNIS__COMM_PAIR_SLOTS = 4,
    IGNIS__COMM_ONE_PHASE_SLOTS = 4, /* steps that an operation may be in advance; see the kernels */
    IGNIS__COMM_TWO_PHASE_SLOTS = 3
};

/*  Codes of what broke a communicator. */
enum {
    IGNIS__COMM_FINE,
    IGNIS__COMM_TIMEOUT,
    IGNIS__COMM_MISMATCH,
    IGNIS__COMM_PEER,
    IGNIS__COMM_TWICE,
    IGNIS__COMM_NCCL_FAILED /* found by the host */
};

/*  The record, in pinned host memory. */
typedef struct ignis__comm_record {
    uint64_t abort; /* the host's request that kernels return: code, and peer << 8 */
    uint64_t code;  /* written last */
    uint32_t peer;
    uint32_t reporter;
    uint32_t op;
    uint64_t mine, theirs; /* fingerprints */
    uint64_t nccl;         /* the number of NCCL's running operation; 0: none */
} ignis__comm_record;
IGNIS__ASSERT_SIZE(ignis__comm_record, 56);

/*  The state, in memory of this rank alone. */
typedef struct ignis__comm_state {
    uint32_t op[IGNIS__COMM_BLOCKS]; /* the last one, counted by each block */
    uint32_t broken;                 /* a code */
    uint32_t running;                /* kernels, except for pairs */
    uint32_t rank, size;
    IGNIS__POINTER(ignis__comm_record) record;
    IGNIS__POINTER(char) region[8];
    uint32_t sent[8][IGNIS__COMM_LANES], received[8][IGNIS__COMM_LANES]; /* steps of pairs */
    uint64_t marks;                                                      /* operations of NCCL */
    uint64_t byte;                                                       /* for barriers by NCCL; not read by kernels */
} ignis__comm_state;
IGNIS__ASSERT_SIZE(ignis__comm_state, 5224);

/*  Arguments of a launch. A slice is what one rank sends to or takes from another. */
typedef struct ignis__comm_call {
    IGNIS__POINTER(char) region[8];
    IGNIS__POINTER(ignis__comm_state) state;
    IGNIS__POINTER(const char) in;
    IGNIS__POINTER(char) out;
    long long count;                 /* elements of a slice; of all slices together in operations of two phases */
    long long in_stride, out_stride; /* bytes from slice to slice */
    long long timeout_ns;
    uint64_t fingerprint;
    uint64_t fingerprint_in; /* of pairs: of the received message */
    int rank;
    /* packs of 16 bytes that a block moves of each slice in a step; packets of a slice for LL in two phases */
    int chunk;
    int steps;
    uint32_t push, take; /* ranks to which this one pushes, and from which it takes */
    uint32_t push_two;   /* as push, for the second phase */
    uint32_t take_two;
    int root;                    /* the rank whose data are copied */
    int none;                    /* the rank without a slice of a tile; the number of ranks: none */
    int in_aligned, out_aligned; /* every slice begins at a multiple of 16 bytes */
    int keep;                    /* this rank's own slice is copied to its output */
} ignis__comm_call;
IGNIS__ASSERT_SIZE(ignis__comm_call, 184);

enum {
    IGNIS__COMM_PACKET_THREADS = 544, /* of a block, at most; one warp of them moves no data */
    IGNIS__COMM_FLAG_THREADS = 512
};

IGNIS__STATIC_ASSERT(comm_ranks, IGNIS_COMM_MAX_RANKS == 8); /* regions of a launch */

/*  Parameters for measurements: IGNIS_COMM_TUNE="ll_max=64K,blocks=32,..." is read when a communicator
    starts, and must be equal on all ranks. -1: from the tables. */
typedef struct ignis__comm_tune {
    int64_t ll_max;       /* bytes of the largest operation by packets in one phase */
    int64_t ll_two_max;   /* in two phases */
    int64_t one_shot_max; /* bytes of the largest operation by flags in one phase */
    int64_t nccl_min;     /* bytes of all slices from which NCCL is used, if joined; 0: never */
    /* by flags; chunk: bytes that a block moves in a step, for all ranks together */
    int64_t blocks, threads, chunk;
    int64_t ll_blocks, ll_threads; /* by packets */
    int64_t lanes;                 /* blocks of a send or receive */
    int64_t epoch;                 /* the number before the first operation */
    int64_t delay;                 /* 1: random delays in blocks, for tests */
} ignis__comm_tune;

#define IGNIS__COMM_TUNES(X) \
    X(ll_max, -1)            \
    X(ll_two_max, -1)        \
    X(one_shot_max, -1)      \
    X(nccl_min, -1)          \
    X(blocks, -1)            \
    X(threads, -1) X(chunk, -1) X(ll_blocks, -1) X(ll_threads, -1) X(lanes, IGNIS__COMM_LANES) X(epoch, 15) X(delay, 0)

/*  The part of a rank in a window. */
typedef struct ignis__window_part {
    uint64_t users; /* ranks of this process that map it */
    ignis__vmm_block block;
} ignis__window_part;

/*  The part that a rank offers to the other threads of its process; NULL: it has failed. */
typedef struct ignis__window_offer {
    ignis__window_part *part;
    uint64_t serial;
} ignis__window_offer;

/*  Memory of this rank that the others read, and theirs. */
typedef struct ignis__window {
    ignis__window_part *part[IGNIS_COMM_MAX_RANKS];
    ignis__counted_memory counted;
} ignis__window;

/*  The regions of all ranks in this process. Communicators of ignis_comm_init_all share them, at the same
    address on all devices. Kernels of each write to the regions of the others, so they are freed with the
    last one. */
typedef struct ignis__comm_regions {
    uint64_t users;
    int count;                                    /* of regions; 0 with one rank, or NCCL alone */
    ignis__address address[IGNIS_COMM_MAX_RANKS]; /* 0: missing */
    ignis__vmm_block block[IGNIS_COMM_MAX_RANKS]; /* own or imported device memory, */
    void *host[IGNIS_COMM_MAX_RANKS];             /* or host memory, */
    bool pinned[IGNIS_COMM_MAX_RANKS];            /* pinned for this device */
    ignis__device *device;
    int64_t bytes; /* of each region in host memory */
    bool late;     /* a copy to or from them has not ended: they are never freed */
    ignis__mutex lock;
    /* of ignis_comm_init_all: the communicators that share them; NULL: ended */
    struct ignis__comm *comms[IGNIS_COMM_MAX_RANKS];
    ignis__window_offer offers[2][IGNIS_COMM_MAX_RANKS]; /* of windows with an even and an odd number */
} ignis__comm_regions;

/*  Memory that kernels of a communicator use; it stays until no graph can run them. */
typedef struct ignis__comm_memory {
    ignis__device *device;
    ignis__block *state;
    ignis__comm_record *record;
    ignis__pinned *record_piece; /* the memory of record */
    ignis__comm_regions *regions;
    ignis__nccl_comm *nccl; /* set before nccl_there; NULL: none. Stays until the end, also after a failure */
} ignis__comm_memory;

/*  Whether NCCL is used. All ranks find out together, at the first operation that NCCL does faster. */
typedef enum ignis__comm_nccl_state {
    IGNIS__COMM_NCCL_UNTRIED,
    IGNIS__COMM_NCCL_JOINED,
    IGNIS__COMM_NCCL_REFUSED
} ignis__comm_nccl_state;

/*  Options of a description; derived communicators inherit them. */
typedef struct ignis__comm_options {
    int64_t timeout_ns;
    ignis_comm_transport transport;
    int most_blocks;  /* 0: all that run at the same time */
    int heartbeat_ms; /* 0: none */
} ignis__comm_options;

typedef struct ignis__comm {
    ignis__slot slot; /* its lock: one operation at a time */
    int rank, size;
    ignis__device *device;
    ignis__comm_options options;
    char reason[256];
    ignis__comm_tune tune;
    int most_blocks;  /* of a kernel, so that all run at the same time */
    uint64_t broken;  /* by the host: code, and rank << 8 */
    void *stream;     /* of its last operation; NULL: unknown */
    uint64_t used_ns; /* of its last operation */
    uint64_t beside;  /* handle of the communicator that used the device before */
    uint64_t windows; /* exchanges of windows between threads of one process so far */
    /* Programs that it has used; [0][0] moves bytes. */
    struct ignis__comm_program *programs[IGNIS_DTYPE_COUNT][IGNIS_OP_COUNT];
    ignis__storage *storage; /* over memory; held by graphs */
    ignis__comm_memory *memory;

    /* For communicators of ignis_comm_init, and those derived from them. */
    ignis__job *job;        /* NULL: of ignis_comm_init_all */
    ignis__job_watch watch; /* with the key of its messages, and its ranks in the job */
    int member[IGNIS__JOB_MAX_RANKS];
    unsigned char gone[IGNIS__JOB_MAX_RANKS];
    ignis__mutex agreement; /* one agreement at a time */
    uint32_t attempts;      /* of agreements */
    ignis_comm_transport transport;
    ignis__comm_nccl_state nccl_state; /* if there are built-in kernels, too */
    uint64_t nccl_there;               /* other threads may use memory->nccl */
    uint64_t nccl_seen;                /* by the watcher: the operation of NCCL that ran at its last look, */
    int64_t nccl_since;                /* and since when */
    uint64_t nccl_told;                /* nccl_reason is set */
    char nccl_reason[192];

    /* Groups: communicators of some of its ranks that fail with it. */
    struct ignis__comm *outer;      /* of a group: the communicator of all; held. NULL: it is no group */
    struct ignis__comm *next_group; /* in the list of outer */
    struct ignis__comm *groups;     /* guarded by groups_lock */
    uint64_t has_groups;            /* or has had some */
    ignis__mutex groups_lock;
} ignis__comm;

/*  How to make a group. */
typedef struct ignis__comm_group {
    int color;      /* equal on its ranks alone */
    int rank, size; /* of this rank in it */
    int patience;   /* how many times as long as in the outer communicator a rank waits in it */
    int key;        /* the ranks of a group, equal on all ranks of the outer communicator */
} ignis__comm_group;

/*  Kernels of a program. */
enum {
    IGNIS__COMM_KERNEL_PACKETS,
    IGNIS__COMM_KERNEL_PACKETS_TWO,
    IGNIS__COMM_KERNEL_PARTS,
    IGNIS__COMM_KERNEL_SLICES,
    IGNIS__COMM_KERNEL_PAIR,
    IGNIS__COMM_KERNEL_MARK,
    IGNIS__COMM_KERNELS
};

typedef struct ignis__comm_program {
    int ranks, dtype, op; /* dtype and op -1: for operations that move bytes */
    bool delay;
    bool loaded; /* false: a thread is loading it */
    bool waits;  /* its packet kernels wait for earlier kernels, and may be launched early */
    ignis__module module;
    void *function[IGNIS__COMM_KERNELS]; /* NULL: not in this variant */
    struct ignis__comm_program *next;
} ignis__comm_program;

/*  Loaded programs. Loading may wait for the device, whose kernel may wait for a kernel that another thread
    is about to load on another device. So no lock is held, and only threads that want the same program
    wait. */
struct ignis__comm_programs_type {
    ignis__mutex lock;
    ignis__comm_program *first[IGNIS_MAX_DEVICES];
};

/*  The vote of a rank after a step. */
typedef struct ignis__vote {
    int32_t failed; /* a diagnostic; 0: success */
    int32_t driver_error;
    int64_t bytes;       /* of its region */
    int32_t most_blocks; /* of its kernels */
    int32_t release;     /* of NCCL */
    uint64_t tune;       /* hash of IGNIS_COMM_TUNE */
    char why[256];
    ignis__nccl_id nccl;
} ignis__vote;

/*  The state while a communicator is created. */
typedef struct ignis__comm_setup {
    const char *call;
    ignis__comm *comm;
    ignis__agreement agreement;
    ignis__record before; /* what this thread had reported before */
    ignis__vote mine, *all;
    bool lost; /* a rank died or did not come; `agreement` has the failure */
} ignis__comm_setup;

enum { IGNIS__PROBE_BYTES = 64 };

/*  Packets have the lowest latency, and carry as many bytes again as data. With three ranks or more, two
    phases move fewer bytes, and wait twice. */
typedef enum ignis__comm_algorithm {
    IGNIS__COMM_BY_PACKETS,
    IGNIS__COMM_BY_PACKETS_TWO,
    IGNIS__COMM_BY_PARTS,
    IGNIS__COMM_BY_SLICES
} ignis__comm_algorithm;

/*  How an operation is done. */
typedef struct ignis__comm_method {
    ignis__comm_algorithm algorithm;
    int blocks, threads; /* that move data; the GPU that runs the fewest at once sets the limit */
    int chunk;           /* by flags: bytes that a block moves in a step, for all ranks together */
} ignis__comm_method;

/*  The first row that fits is used; bytes are those that a rank sends to or gets from each other one.
    all_reduce was measured on 2 and 4 H200s with NVLink; 3 ranks do as 4. From 5 ranks on, packets are pushed
    more often, so they end at smaller sizes. The other operations were measured on 4 H200s with 64 blocks;
    they use the 128 that proved better for all_reduce. */
struct ignis__comm_table_type {
    ignis__comm_kind kind; /* 0: any */
    int most_ranks;
    int64_t most_bytes;
    ignis__comm_method method;
};

/*  Bytes of all slices together from which NCCL is enough faster to join it; 0, and operations without a row:
    never. Measured on 2 and 4 H200s, with 64 blocks except for all_reduce. Rows for 2 ranks of the other
    operations come from their pushes; 5 ranks and more are as 4. */
struct ignis__comm_nccl_table_type {
    ignis__comm_kind kind;
    int most_ranks;
    int64_t least_bytes;
};

/*  The launch of an operation: kernel, blocks and threads; chunk and steps are in the call. */
typedef struct ignis__comm_plan {
    int kernel;
    unsigned blocks, threads;
} ignis__comm_plan;

typedef struct ignis__split {
    int32_t color, key;
} ignis__split;


/*  >>nccl - NCCL, opened at run time, without its headers

    A nonblocking communicator with deadlines around NCCL's calls, and tasks handed to it.
    Uses: the loader's table of ignis.h, threads.
    Invariants: no call blocks without a deadline; a communicator that failed is aborted, never reused.
    Locks: nccl->lock, one call of NCCL at a time; held around a whole group of calls. */

/*  By ignis_dtype; the first one is the default. */
static const int ignis__nccl_dtypes[IGNIS_DTYPE_COUNT] = {
    IGNIS__NCCL_FLOAT32, IGNIS__NCCL_FLOAT16, IGNIS__NCCL_BFLOAT16, IGNIS__NCCL_FLOAT32,     IGNIS__NCCL_FLOAT64,
    IGNIS__NCCL_INT32,   IGNIS__NCCL_INT64,   IGNIS__NCCL_UINT8,    IGNIS__NCCL_FLOAT8_E4M3, IGNIS__NCCL_FLOAT8_E5M2};
/*  By ignis_op. */
static const int ignis__nccl_ops[IGNIS_OP_COUNT] = {IGNIS__NCCL_SUM, IGNIS__NCCL_PROD, IGNIS__NCCL_MIN, IGNIS__NCCL_MAX,
                                                    IGNIS__NCCL_AVG};

#define IGNIS__NCCL_GOODBYE_NS 5000000000 /* what ends later is no longer waited for */

#define IGNIS__NCCL(name, args) IGNIS_CALL_HOOK(#name, ignis__nccl.name args)

/*  Opens NCCL and checks its version. */
IGNIS__PRIVATE bool ignis__nccl_open(const char *call)
{
    const struct ignis__loaded *loaded = &ignis__libraries[IGNIS_LIBRARY_NCCL];
    int release;
    if (!ignis__library_load(call, IGNIS_LIBRARY_NCCL))
        return false;
    release = (int)loaded->release;
    if (release >= IGNIS__NCCL_VERSION_LEAST)
        return true;
    return ignis__fail_false(IGNIS_DIAG_LIBRARY_SYMBOL, call,
                             "NCCL (%s) has version %d.%d.%d; 2.19.0 or newer is needed", loaded->path, release / 10000,
                             release / 100 % 100, release % 100);
}

/*  Reports an error of NCCL as a failure of `call`. */
IGNIS__COLD static ignis_status ignis__nccl_fail(const char *call, void *comm, const char *function, int error)
{
    const char *text = ignis__nccl.ncclGetErrorString(error), *detail = ignis__nccl.ncclGetLastError(comm);
    return ignis__fail_because(IGNIS_DIAG_NCCL_CALL, call, error, text, NULL, "%s failed with \"%s\" (%d)%s%s",
                               function, text ? text : "unknown error", error, detail && *detail ? ": " : "",
                               detail ? detail : "");
}

/*  Waits until the last call on the communicator is done. Returns NCCL's result, or _ABORTED, or _LATE. */
static int ignis__nccl_wait(ignis__nccl_comm *nccl, int64_t deadline_ns)
{
    for (;;) {
        int state = IGNIS__NCCL_ABORTED, error = IGNIS__NCCL_SUCCESS;
        ignis__mutex_lock(&nccl->lock);
        if (nccl->comm)
            error = IGNIS__NCCL(ncclCommGetAsyncError, (nccl->comm, &state));
        ignis__mutex_unlock(&nccl->lock);
        if (error != IGNIS__NCCL_SUCCESS)
            return error;
        if (state != IGNIS__NCCL_IN_PROGRESS)
            return state;
        if (ignis__monotonic_ns() >= deadline_ns)
            return IGNIS__NCCL_LATE;
        ignis__sleep_us(20);
    }
}

/*  Drops a user; the last one frees it, but not by the user's allocator: that may be long after
    ignis_shutdown. */
static void ignis__nccl_drop(ignis__nccl_comm *nccl)
{
    if (ignis__atomic_add(&nccl->users, (uint64_t)-1) == 0)
        free(nccl);
}

static IGNIS__THREAD_RESULT ignis__nccl_reap(void *data)
{
    ignis__nccl_comm *nccl = (ignis__nccl_comm *)data;
    ignis__binding binding;
    bool entered = ignis__device_enter_to_give("ignis_comm_destroy", nccl->device, &binding);
    (void)(nccl->aborts ? IGNIS__NCCL(ncclCommAbort, (nccl->ending)) : IGNIS__NCCL(ncclCommDestroy, (nccl->ending)));
    if (entered)
        ignis__device_leave(&binding);
    ignis__nccl_drop(nccl);
    return 0;
}

/*  Starts a reaper thread that ends the communicator, as both calls may wait: ncclCommAbort for the last
    graph that captured an operation, ncclCommDestroy for the other ranks of the host. */
static void ignis__nccl_start_reaper(ignis__nccl_comm *nccl, bool aborts)
{
    bool alone = false;
    ignis__mutex_lock(&nccl->lock);
    if (nccl->comm) {
        nccl->ending = nccl->comm;
        nccl->comm = NULL;
        nccl->aborts = aborts;
        ignis__atomic_add(&nccl->users, 1);
        alone = !ignis__thread_start(&nccl->reaper, ignis__nccl_reap, nccl);
    }
    ignis__mutex_unlock(&nccl->lock);
    if (!alone)
        return;
    (void)ignis__nccl_reap(nccl);
    nccl->ending = NULL;
}

/*  Aborts an NCCL communicator at once, also during operations: they end with undefined results here, and do
    not end on other ranks. Any thread may call it. */
IGNIS__PRIVATE void ignis__nccl_abort(ignis__nccl_comm *nccl) { ignis__nccl_start_reaper(nccl, true); }

/*  Reports a failed call and aborts the communicator. */
IGNIS__COLD static bool ignis__nccl_fail_and_abort(const char *call, ignis__nccl_comm *nccl, const char *function,
                                                   int error)
{
    if (error == IGNIS__NCCL_ABORTED)
        ignis__fail(IGNIS_DIAG_COMM_BROKEN, call, "the communicator was aborted during %s", function);
    else if (error == IGNIS__NCCL_LATE)
        ignis__fail(IGNIS_DIAG_COMM_TIMEOUT, call, "%s did not end within %lld ms: other ranks did not come", function,
                    (long long)(nccl->patience_ns / 1000000));
    else
        ignis__nccl_fail(call, nccl->comm, function, error);
    ignis__nccl_abort(nccl);
    return false;
}

/*  Keeps the library that contains Ignis, if any, from being unloaded: a thread runs in it that cannot be
    waited for. */
IGNIS__COLD static void ignis__library_keep_loaded(void)
{
#ifdef _WIN32
    HMODULE module;
    (void)GetModuleHandleExW(GET_MODULE_HANDLE_EX_FLAG_FROM_ADDRESS | GET_MODULE_HANDLE_EX_FLAG_PIN,
                             (LPCWSTR)(const void *)&ignis__local_slots, &module);
#else
    struct {
        const char *file;
        void *base;
        const char *symbol;
        void *address;
    } found = IGNIS__ZERO; /* a Dl_info */
    int (*find)(const void *address, void *info);
    /* dlfcn.h hides it in strict C */
    void *program = dlopen(NULL, RTLD_LAZY), *symbol = program ? dlsym(program, "dladdr") : NULL;
    memcpy(&find, &symbol, sizeof find);
    if (symbol && find(&ignis__fds, &found) && found.file)
        (void)dlopen(found.file, RTLD_LAZY);
    if (program)
        dlclose(program);
#endif
}

/*  Leaves an NCCL communicator; its operations are done, and no graph has any. NULL is allowed. On one host
    an abort waits for nobody. With other hosts it could cut off their last operation, so it is destroyed; if
    that takes too long, the reaper does it. */
IGNIS__PRIVATE void ignis__nccl_leave(const char *call, ignis__nccl_comm *nccl)
{
    ignis__binding binding;
    int64_t deadline;
    bool finalized = false;
    int error;
    if (!nccl)
        return;
    if (nccl->comm && ignis__device_enter_to_give(call, nccl->device, &binding)) {
        error = IGNIS__NCCL(ncclCommFinalize, (nccl->comm));
        if (error == IGNIS__NCCL_IN_PROGRESS)
            error = ignis__nccl_wait(nccl, ignis__monotonic_ns() + nccl->patience_ns);
        finalized = error == IGNIS__NCCL_SUCCESS;
        ignis__device_leave(&binding);
    }
    ignis__nccl_start_reaper(nccl, !(finalized && nccl->hosts));
    deadline = ignis__monotonic_ns() + IGNIS__NCCL_GOODBYE_NS;
    while (ignis__atomic_load(&nccl->users) > 1 && ignis__monotonic_ns() < deadline)
        ignis__sleep_us(20);
    if (nccl->ending && ignis__atomic_load(&nccl->users) > 1) {
        ignis__library_keep_loaded();
        ignis__thread_detach(nccl->reaper);
    } else if (nccl->ending) {
        ignis__thread_join(nccl->reaper);
    }
    ignis__nccl_drop(nccl);
}

/*  Creates the id that one rank makes and all pass to ignis__nccl_begin. */
IGNIS__PRIVATE bool ignis__nccl_make_id(const char *call, ignis__nccl_id *id)
{
    int error;
    memset(id, 0, sizeof *id);
    if (!ignis__nccl_open(call))
        return false;
    error = IGNIS__NCCL(ncclGetUniqueId, (id));
    return error == IGNIS__NCCL_SUCCESS || ignis__nccl_fail(call, NULL, "ncclGetUniqueId", error) == IGNIS_OK;
}

/*  Begins to join the other ranks; ignis__nccl_wait_joined waits for them. A thread that drives several ranks
    begins with all, then waits. patience_ns is for this and every later call. NULL on failure. */
IGNIS__PRIVATE ignis__nccl_comm *ignis__nccl_begin(const char *call, ignis__device *device, const ignis__nccl_id *id,
                                                   int rank, int size, int64_t patience_ns)
{
    ignis__nccl_config config;
    ignis__nccl_comm *nccl;
    ignis__binding binding;
    int error;
    if (!ignis__nccl_open(call))
        return NULL;
    nccl = (ignis__nccl_comm *)calloc(1, sizeof *nccl);
    if (!nccl) {
        ignis__fail_host_memory(call, sizeof *nccl);
        return NULL;
    }
    if (!ignis__device_enter(call, device, &binding)) {
        free(nccl);
        return NULL;
    }
    memset(&config, 0, sizeof config);
    config.size = sizeof config;
    config.magic = 0xCAFEBEEFu;
    config.version = IGNIS__NCCL_VERSION_LEAST;
    /* NCCL decides */
    config.cluster_size = config.least_blocks = config.most_blocks = config.split_share = INT_MIN;
    ignis__mutex_init(&nccl->lock);
    nccl->users = 1;
    nccl->device = device;
    nccl->patience_ns = patience_ns;
    error = IGNIS__NCCL(ncclCommInitRankConfig, (&nccl->comm, size, *id, rank, &config));
    ignis__device_leave(&binding);
    if (error == IGNIS__NCCL_SUCCESS || error == IGNIS__NCCL_IN_PROGRESS)
        return nccl;
    (void)ignis__nccl_fail_and_abort(call, nccl, "ncclCommInitRankConfig", error);
    ignis__nccl_leave(call, nccl);
    return NULL;
}

/*  Waits until all ranks have joined. On failure the communicator is aborted; the caller still leaves it. */
IGNIS__PRIVATE bool ignis__nccl_wait_joined(const char *call, ignis__nccl_comm *nccl)
{
    int error = ignis__nccl_wait(nccl, ignis__monotonic_ns() + nccl->patience_ns);
    return error == IGNIS__NCCL_SUCCESS || ignis__nccl_fail_and_abort(call, nccl, "ncclCommInitRankConfig", error);
}

/*  Keeps the first failure; without one, whether a call is in progress. */
static void ignis__nccl_keep_error(int *first, int error)
{
    if (*first == IGNIS__NCCL_SUCCESS || (*first == IGNIS__NCCL_IN_PROGRESS && error != IGNIS__NCCL_SUCCESS))
        *first = error;
}

/*  Queues one operation in NCCL. Returns the first failure. */
static int ignis__nccl_queue(void *comm, const ignis__comm_task *task, int size, void *stream)
{
    const char *from = (const char *)(uintptr_t)task->in;
    char *to = (char *)(uintptr_t)task->out;
    size_t number = (size_t)task->count, bytes = number * (size_t)ignis__dtypes[task->dtype].size;
    int type = ignis__nccl_dtypes[task->dtype], reduction = ignis__nccl_ops[task->op], root = task->root,
        error = IGNIS__NCCL_SUCCESS, peer;
    switch (task->kind) {
    case IGNIS__COMM_ALL_REDUCE: return IGNIS__NCCL(ncclAllReduce, (from, to, number, type, reduction, comm, stream));
    case IGNIS__COMM_REDUCE: return IGNIS__NCCL(ncclReduce, (from, to, number, type, reduction, root, comm, stream));
    case IGNIS__COMM_BROADCAST: return IGNIS__NCCL(ncclBroadcast, (from, to, number, type, root, comm, stream));
    case IGNIS__COMM_ALL_GATHER: return IGNIS__NCCL(ncclAllGather, (from, to, number, type, comm, stream));
    case IGNIS__COMM_REDUCE_SCATTER:
        return IGNIS__NCCL(ncclReduceScatter, (from, to, number, type, reduction, comm, stream));
    case IGNIS__COMM_SEND: return IGNIS__NCCL(ncclSend, (from, number, type, root, comm, stream));
    case IGNIS__COMM_RECV: return IGNIS__NCCL(ncclRecv, (to, number, type, root, comm, stream));
    default:
        for (peer = 0; peer < size; peer++) {
            ignis__nccl_keep_error(
                &error, IGNIS__NCCL(ncclSend, (from + (size_t)peer * bytes, number, type, peer, comm, stream)));
            ignis__nccl_keep_error(
                &error, IGNIS__NCCL(ncclRecv, (to + (size_t)peer * bytes, number, type, peer, comm, stream)));
        }
        return error;
    }
}

/*  Queues operations on the stream. Messages of one call travel at the same time, as one alone could wait for
    the other for ever. The device is entered. A failure breaks the communicator. *aborted: another thread has aborted
    it, which is not reported here, as the caller knows the reason. */
IGNIS__PRIVATE bool ignis__nccl_run(const char *call, ignis__nccl_comm *nccl, const ignis__comm_task *tasks, int count,
                                    int size, void *stream, bool *aborted)
{
    static const char *const names[IGNIS__COMM_BARRIER] = {"",
                                                           "ncclAllReduce",
                                                           "ncclReduce",
                                                           "ncclBroadcast",
                                                           "ncclAllGather",
                                                           "ncclReduceScatter",
                                                           "ncclSend and ncclRecv",
                                                           "ncclSend",
                                                           "ncclRecv"};
    const bool grouped = count > 1 || tasks[0].kind == IGNIS__COMM_ALL_TO_ALL;
    int error = IGNIS__NCCL_SUCCESS, i;
    void *comm;
    ignis__mutex_lock(&nccl->lock); /* over the whole group: no thread may abort the communicator meanwhile */
    comm = nccl->comm;
    *aborted = !comm;
    if (!comm) {
        ignis__mutex_unlock(&nccl->lock);
        return false;
    }
    if (grouped)
        (void)IGNIS__NCCL(ncclGroupStart, ());
    for (i = 0; i < count; i++)
        ignis__nccl_keep_error(&error, ignis__nccl_queue(comm, &tasks[i], size, stream));
    if (grouped)
        ignis__nccl_keep_error(&error, IGNIS__NCCL(ncclGroupEnd, ()));
    ignis__mutex_unlock(&nccl->lock);
    if (error == IGNIS__NCCL_IN_PROGRESS)
        error = ignis__nccl_wait(nccl, ignis__monotonic_ns() + nccl->patience_ns);
    *aborted = error == IGNIS__NCCL_ABORTED;
    return error == IGNIS__NCCL_SUCCESS ||
           (!*aborted &&
            ignis__nccl_fail_and_abort(call, nccl, names[grouped ? IGNIS__COMM_ALL_TO_ALL : tasks[0].kind], error));
}

/*  Returns the error of operations that are running, such as a lost host: NCCL's result, 0 if there is
    none. */
IGNIS__PRIVATE int ignis__nccl_error(ignis__nccl_comm *nccl)
{
    int error = ignis__nccl_wait(nccl, 0);
    return error == IGNIS__NCCL_LATE || error == IGNIS__NCCL_ABORTED ? IGNIS__NCCL_SUCCESS : error;
}

/*  >>job - the processes of one program: how they meet, exchange messages and learn who died

    Reads rank, size and rendezvous from the description, the id, or the variables of launchers.
    Uses: peer and channel; the environment.
    Invariants: no variable is trusted before it is checked; two launchers that disagree are an error.
    Locks: none in this part. The order in the room: a connection's locks, then the job's lock. */

typedef char ignis__id_size_check[sizeof(ignis__id) == IGNIS_COMM_ID_BYTES ? 1 : -1];

/*  Launchers and their variables. The first complete one is used, unless another one contradicts. */
static const struct {
    const char *name, *rank, *size, *local_rank;
    const char *job[2]; /* together they name the job; NULL: none */
} ignis__launchers[] = {
    {"ignis", "IGNIS_RANK", "IGNIS_WORLD_SIZE", "IGNIS_LOCAL_RANK", {NULL, NULL}},
    {"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", {"TORCHELASTIC_RUN_ID", NULL}},
    {"openmpi",
     "OMPI_COMM_WORLD_RANK",
     "OMPI_COMM_WORLD_SIZE",
     "OMPI_COMM_WORLD_LOCAL_RANK",
     {"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"}},
    {"pmi", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", {"PMI_JOBID", NULL}},
    {"slurm", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", {"SLURM_JOB_ID", "SLURM_STEP_ID"}},
};

/*  Reads a variable with an integer from low to high; *number is -1 if it is unset. False, and reported, for
    other values. */
static bool ignis__env_number(const char *call, const char *name, int low, int high, int *number)
{
    const char *text = ignis__env(name), *digit;
    int64_t value = 0;
    *number = -1;
    if (!text)
        return true;
    for (digit = text; *digit >= '0' && *digit <= '9' && value <= high; digit++)
        value = value * 10 + (*digit - '0');
    if (digit == text || *digit || value < low || value > high)
        return ignis__fail_false(IGNIS_DIAG_COMM_ENVIRONMENT, call,
                                 "%s is \"%.64s\"; expected an integer from %d to %d", name, text, low, high);
    *number = (int)value;
    return true;
}

/*  Reads the variables of one launcher. False, and reported, if they are incomplete or invalid; size is -1 if
    they are unset. */
static bool ignis__launcher_read(const char *call, int which, ignis__place *place)
{
    const char *rank = ignis__launchers[which].rank, *size = ignis__launchers[which].size;
    if (!ignis__env_number(call, rank, 0, IGNIS__JOB_MAX_RANKS - 1, &place->rank) ||
        !ignis__env_number(call, size, 1, IGNIS__JOB_MAX_RANKS, &place->size) ||
        !ignis__env_number(call, ignis__launchers[which].local_rank, 0, IGNIS__JOB_MAX_RANKS - 1, &place->local_rank))
        return false;
    if ((place->rank < 0) != (place->size < 0))
        return ignis__fail_false(IGNIS_DIAG_COMM_ENVIRONMENT, call, "%s is set, but %s is not; a rank needs both",
                                 place->rank < 0 ? size : rank, place->rank < 0 ? rank : size);
    return place->size <= 0 || place->rank < place->size ||
           ignis__fail_false(IGNIS_DIAG_COMM_ENVIRONMENT, call, "%s is %d and %s is %d; expected a rank from 0 to %d",
                             rank, place->rank, size, place->size, place->size - 1);
}

/*  Reads the launcher's name of the job; torchrun says "none" for a job without a name. */
static void ignis__job_read_name(int which, ignis__place *place)
{
    const char *part[2];
    int i;
    for (i = 0; i < 2; i++) {
        const char *variable = ignis__launchers[which].job[i];
        part[i] = variable && ignis__env(variable) ? ignis__env(variable) : "";
    }
    if ((*part[0] || *part[1]) && strcmp(part[0], "none") != 0)
        snprintf(place->job, sizeof place->job, "%.60s.%.60s.%s", part[0], part[1], ignis__launchers[which].name);
}

static bool ignis__launchers_read(const char *call, ignis__place *place)
{
    const char *wanted = ignis__env("IGNIS_COMM_LAUNCHER");
    int i, found = -1;
    bool known = !wanted;
    for (i = 0; i < IGNIS__COUNT(ignis__launchers); i++) {
        ignis__place said = IGNIS__ZERO;
        if (wanted && strcmp(wanted, ignis__launchers[i].name) != 0)
            continue;
        known = true;
        if (!ignis__launcher_read(call, i, &said))
            return false;
        if (said.size < 0)
            continue;
        if (found < 0) {
            place->rank = said.rank;
            place->size = said.size;
            place->local_rank = said.local_rank;
            ignis__job_read_name(i, place);
            found = i;
        } else if (said.rank != place->rank || said.size != place->size) {
            return ignis__fail_false(IGNIS_DIAG_COMM_ENVIRONMENT, call,
                                     "%s and %s say rank %d of %d, but %s and %s say rank %d of %d; unset one pair, or "
                                     "name the right launcher: "
                                     "IGNIS_COMM_LAUNCHER=%s or %s",
                                     ignis__launchers[found].rank, ignis__launchers[found].size, place->rank,
                                     place->size, ignis__launchers[i].rank, ignis__launchers[i].size, said.rank,
                                     said.size, ignis__launchers[found].name, ignis__launchers[i].name);
        }
    }
    if (!known || (wanted && found < 0))
        return ignis__fail_false(IGNIS_DIAG_COMM_ENVIRONMENT, call, "IGNIS_COMM_LAUNCHER is \"%.64s\", %s", wanted,
                                 known ? "whose variables are not set"
                                       : "expected ignis, torchrun, openmpi, pmi or slurm");
    return true;
}

/*  Parses "dir:/path", "host:port" or "[::1]:port". */
static bool ignis__place_parse(const char *call, const char *what, const char *text, ignis__place *place)
{
    const char *colon = strrchr(text, ':'), *digit = colon ? colon + 1 : "";
    size_t length = colon ? (size_t)(colon - text) : 0;
    long port = 0;
    if (strncmp(text, "dir:", 4) == 0) {
        if (text[4] && strlen(text + 4) < sizeof place->folder) {
            snprintf(place->folder, sizeof place->folder, "%s", text + 4);
            return true;
        }
        return ignis__fail_false(IGNIS_DIAG_BAD_NUMBER, call, "%s is \"%.300s\"; expected a path of 1 to %d bytes",
                                 what, text, (int)sizeof place->folder - 1);
    }
    while (*digit >= '0' && *digit <= '9' && port <= 65535)
        port = port * 10 + (*digit++ - '0');
    if (length >= 2 && text[0] == '[' && text[length - 1] == ']') {
        text++;
        length -= 2;
    }
    if (length > 0 && length < 256 && !*digit && port >= 1 && port <= 65535 && !memchr(text, ',', length)) {
        snprintf(place->address, sizeof place->address, "%.*s:%ld", (int)length, text, port);
        return true;
    }
    return ignis__fail_false(IGNIS_DIAG_COMM_ENVIRONMENT, call,
                             "%s is \"%.300s\"; expected \"dir:/path\", or \"host:port\" with a port from 1 to 65535",
                             what, text);
}

/*  Reads the rendezvous from the environment, or derives it from the launcher's name of the job. torchrun's
    own store listens at MASTER_PORT, so its ranks meet at the next port. */
static bool ignis__place_read_environment(const char *call, ignis__place *place)
{
    const char *folder = ignis__env("IGNIS_COMM_DIR"), *host = ignis__env("MASTER_ADDR"),
               *agent = ignis__env("TORCHELASTIC_USE_AGENT_STORE");
    char text[512];
    int port, master;
    if (folder && *folder) {
        snprintf(text, sizeof text, "dir:%s", folder);
        return ignis__place_parse(call, "IGNIS_COMM_DIR", text, place);
    }
    if (!ignis__env_number(call, "IGNIS_COMM_PORT", 1, 65535, &port) ||
        !ignis__env_number(call, "MASTER_PORT", 1, 65534, &master))
        return false;
    if (port < 0 && master > 0)
        port = master + (agent && strcmp(agent, "True") == 0);
    if (host && *host && port > 0) {
        snprintf(text, sizeof text, strchr(host, ':') ? "[%.255s]:%d" : "%.255s:%d", host, port);
        return ignis__place_parse(call, "MASTER_ADDR", text, place);
    }
    if (*place->job)
        return true;
    return ignis__fail_false(IGNIS_DIAG_COMM_ENVIRONMENT, call,
                             "rank %d of %d has no rendezvous: set IGNIS_COMM_DIR to a private folder (one host), "
                             "MASTER_ADDR and MASTER_PORT, desc.rendezvous, or desc.id",
                             place->rank, place->size);
}

/*  Tells if rank 0 listens at its host and port. If not, the ranks meet in the folder, by a name made of
    address and job. */
static bool ignis__place_is_host_port(const ignis__place *place)
{
#ifdef _WIN32 /* no ranks of other hosts: they need NCCL */
    (void)place;
    return false;
#else
    return place->has_secret;
#endif
}

/*  Reads the secret: of an id, of a token, or of the user's private folder. */
static bool ignis__place_secret_read(const char *call, const ignis_comm_desc *desc, ignis__place *place)
{
    const char *token = desc->token ? desc->token : ignis__env("IGNIS_COMM_TOKEN");
    ignis__sha sha;
    uint64_t hash;
    if (desc->id) {
        ignis__id id;
        memcpy(&id, desc->id, sizeof id);
        if (memcmp(id.magic, "IGNISID1", sizeof id.magic) != 0 || !memchr(id.address, 0, sizeof id.address) ||
            desc->rendezvous || desc->token)
            return ignis__fail_false(
                IGNIS_DIAG_BAD_NUMBER, call,
                desc->rendezvous || desc->token
                    ? "desc.id contains rendezvous and secret; with it desc.rendezvous and desc.token must be null"
                    : "desc.id was not made by ignis_comm_unique_id");
        snprintf(place->address, sizeof place->address, "%s", id.address);
        memcpy(place->secret, id.secret, sizeof place->secret);
        place->by_id = place->has_secret = true;
        return true;
    }
    if (!(desc->rendezvous ? ignis__place_parse(call, "desc.rendezvous", desc->rendezvous, place)
                           : ignis__place_read_environment(call, place)))
        return false;
    snprintf(place->name, sizeof place->name, "meet");
    if (token && *token && *place->address) {
        ignis__sha_begin(&sha);
        ignis__sha_add(&sha, token, strlen(token));
        ignis__sha_end(&sha, place->secret);
        place->has_secret = true;
    }
    if (!*place->folder && !ignis__place_is_host_port(place)) {
        hash = ignis__hash(ignis__hash(IGNIS__HASH_START, place->address, strlen(place->address)), place->job,
                           strlen(place->job));
        snprintf(place->name, sizeof place->name, "job-%016llx", (unsigned long long)hash);
        place->address[0] = 0;
    }
    return true;
}

IGNIS__PRIVATE bool ignis__place_read(const char *call, const ignis_comm_desc *desc, ignis__place *place)
{
    memset(place, 0, sizeof *place);
    place->size = 1;
    place->local_rank = -1;
    if (desc->size < 0 || desc->size > IGNIS__JOB_MAX_RANKS || desc->rank < 0 ||
        desc->rank >= (desc->size ? desc->size : 1))
        return ignis__fail_false(IGNIS_DIAG_BAD_NUMBER, call,
                                 "desc.rank is %d and desc.size is %d; expected a size up to %d and a rank below it",
                                 desc->rank, desc->size, (int)IGNIS__JOB_MAX_RANKS);
    if (desc->size) {
        place->rank = desc->rank;
        place->size = desc->size;
    } else if (!ignis__launchers_read(call, place)) {
        return false;
    }
    return place->size == 1 || ignis__global.dry_run || ignis__place_secret_read(call, desc, place);
}

/*  Returns the device of a rank that does not name one. */
IGNIS__PRIVATE int ignis__place_device(const char *call, const ignis__place *place)
{
    int local = place->local_rank;
    if (ignis__device_total <= 1)
        return 0;
    if (local < 0)
        return place->rank % ignis__device_total;
    if (local >= ignis__device_total) {
        ignis__fail(IGNIS_DIAG_DEVICE_RANGE, call,
                    "local rank %d would use device %d of %d; start one process for each GPU, or set desc.device",
                    local, local, ignis__device_total);
        return -1;
    }
    return local;
}

/*  >>job.protocol - types that ranks exchange, and the interface of jobs

    Structs travel as they are in memory: all ranks run the same version of Ignis, which the version number checks.
    Invariants: no pointers in structs that are sent.
    Locks: watches are called with the job locked. */

IGNIS__PRIVATE bool ignis__bit(const unsigned char *bits, int i) { return bits[i / 8] >> i % 8 & 1; }
IGNIS__PRIVATE void ignis__bit_set(unsigned char *bits, int i)
{
    bits[i / 8] = (unsigned char)(bits[i / 8] | 1u << i % 8);
}

/*  >>job.poller - the poller: one thread waits for all ranks

    The type; the functions are in system_posix.c and system_windows.c.
    Uses: connections.
    Invariants: one thread waits, any thread may wake it.
    Locks: none. */


#ifdef _WIN32

/*  >>job.system_windows - Windows: the poller, the watcher's thread, pipes of ranks

    The functions of the system for jobs; system_posix.c has the same names. All ranks are on one host.
    Uses: Windows, named pipes of channels.
    Locks: none. */

IGNIS__PRIVATE bool ignis__poller_open(const char *call, ignis__poller *poller)
{
    poller->bell = CreateEventW(NULL, FALSE, FALSE, NULL);
    return poller->bell || ignis__fail_false(IGNIS_DIAG_CHANNEL_IO, call,
                                             "the system returned no event: Windows error %lu", GetLastError());
}
IGNIS__PRIVATE void ignis__poller_close(ignis__poller *poller)
{
    if (poller->bell)
        CloseHandle(poller->bell);
}
IGNIS__PRIVATE void ignis__poller_wake(const ignis__poller *poller) { SetEvent(poller->bell); }

/*  Polls pipes, which cannot wake a waiter; less often with time. */
IGNIS__PRIVATE void ignis__poller_wait(ignis__poller *poller, int ms)
{
    bool any = false;
    int i;
    if (ms != 0) {
        poller->pause_ms += poller->pause_ms < 5;
        any = WaitForSingleObject(poller->bell, (DWORD)(ms > 0 && ms < poller->pause_ms ? ms : poller->pause_ms)) ==
              WAIT_OBJECT_0;
    }
    for (i = 0; i < poller->count; i++) {
        ignis__connection *connection = poller->connection[i];
        DWORD available = 0;
        poller->is_ready[i] =
            connection && (!PeekNamedPipe(connection->in, NULL, 0, NULL, &available, NULL) || available > 0);
        any |= poller->is_ready[i] || (connection && ignis__atomic_load(&connection->unsent));
    }
    poller->pause_ms = any ? 0 : poller->pause_ms;
}

IGNIS__PRIVATE bool ignis__watcher_start(ignis__thread_handle *thread, DWORD(WINAPI *run)(void *), void *context)
{
    return ignis__thread_start(thread, run, context);
}

IGNIS__PRIVATE uint64_t ignis__host_namespaces(uint64_t hash) { return hash; }

/*  Makes the name of the pipe where a rank waits, from the digits of a place. A false name leads to no other
    place. */
IGNIS__PRIVATE bool ignis__local_name(const char *folder, int rank, uint64_t random, char *out, size_t size)
{
    (void)folder, (void)rank;
    return snprintf(out, size, "%016llx", (unsigned long long)random) < (int)size;
}
IGNIS__PRIVATE void ignis__local_path(const char *name, char path[IGNIS__PATH_MAX])
{
    ignis__pipe_path(path, strtoull(name, NULL, 16));
}

/*  Does nothing: rank 0 opens the pipe of an id when it comes. */
IGNIS__PRIVATE bool ignis__id_listen(ignis__id *id, ignis__file *listener)
{
    uint64_t place = 0;
    *listener = IGNIS__NO_FILE;
    return ignis__random_bytes(&place, sizeof place) &&
           ignis__local_name("", 0, place, id->address, sizeof id->address);
}

#else /* POSIX */

/*  >>job.system_posix - POSIX: TCP sockets, the poller, the watcher's thread, hosts

    The functions of the system for jobs; system_windows.c has the same names.
    Uses: POSIX sockets, /proc.
    Invariants: a listener without a token accepts from this host only.
    Locks: none. */

#define IGNIS__POLL_HANGUP 0x2000 /* POLLRDHUP, which -std=c99 hides: the peer of a stream will send nothing more */

/*  Seconds after which a silent host counts as dead. A process that is only stopped is not: its system
    answers for it. */

static void ignis__tcp_tune(int fd)
{
    static const int options[][3] = {
        {SOL_SOCKET, SO_KEEPALIVE, 1},
        {IPPROTO_TCP, TCP_NODELAY, 1},
#ifdef TCP_USER_TIMEOUT
        {IPPROTO_TCP, TCP_KEEPIDLE, (IGNIS__JOB_SILENCE_S + 2) / 3},
        {IPPROTO_TCP, TCP_KEEPINTVL, (IGNIS__JOB_SILENCE_S + 5) / 6},
        {IPPROTO_TCP, TCP_USER_TIMEOUT, IGNIS__JOB_SILENCE_S * 1000},
#endif
    };
    int i;
    for (i = 0; i < IGNIS__COUNT(options); i++)
        (void)setsockopt(fd, options[i][0], options[i][1], &options[i][2], sizeof options[i][2]);
}

/*  Opens a socket for one address, listening or connected; -1 with errno on failure. */
static int ignis__tcp_try(const struct addrinfo *at, bool to_listen)
{
    const ignis__deadline until = ignis__deadline_in(1000 * IGNIS__MILLISECOND);
    ignis__peer_error late;
    int fd = ignis__fd_register(socket(at->ai_family, at->ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, at->ai_protocol)),
        one = 1, os_error = 0;
    socklen_t size = sizeof os_error;
    if (fd < 0)
        return -1;
    if (to_listen) {
        (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
        if (bind(fd, at->ai_addr, at->ai_addrlen) != 0 || listen(fd, 4096) != 0)
            os_error = errno;
    } else if (connect(fd, at->ai_addr, at->ai_addrlen) != 0) {
        os_error = errno;
        if (os_error == EINPROGRESS && !ignis__fd_wait(&late, fd, POLLOUT, &until, ""))
            os_error = ETIMEDOUT;
        else if (os_error == EINPROGRESS && getsockopt(fd, SOL_SOCKET, SO_ERROR, &os_error, &size) != 0)
            os_error = errno;
    }
    ignis__tcp_tune(fd);
    if (!os_error)
        return fd;
    ignis__peer_file_close(&fd);
    errno = os_error;
    return -1;
}

/*  Opens a socket for "host:port", or for the attempt-th host of "host,host:port". */
static int ignis__tcp_open(ignis__peer_error *error, const char *path, int attempt, bool to_listen)
{
    struct addrinfo hints, *all = NULL, *at;
    char text[IGNIS__PATH_MAX], *host = text, *port, *comma;
    int fd = -1, os_error, hosts = 1, anywhere = 0;
    snprintf(text, sizeof text, "%s", path);
    port = strrchr(text, ':');
    if (!port) {
        ignis__peer_error_set(error, IGNIS_DIAG_CHANNEL_IO, "\"%.200s\" lacks a port", path);
        return -1;
    }
    *port++ = 0;
    for (comma = text; (comma = strchr(comma, ',')) != NULL; comma++)
        hosts++;
    for (attempt %= hosts; attempt > 0; attempt--)
        host = strchr(host, ',') + 1;
    host[strcspn(host, ",")] = 0;
    memset(&hints, 0, sizeof hints);
    hints.ai_socktype = SOCK_STREAM;
    os_error = getaddrinfo(host, port, &hints, &all);
    if (os_error) {
        ignis__peer_error_set(error, IGNIS_DIAG_CHANNEL_IO, "%.100s: %s", host, gai_strerror(os_error));
        return -1;
    }
    for (at = all; at && fd < 0; at = at->ai_next) {
        fd = ignis__tcp_try(at, to_listen);
        anywhere |= fd < 0 && errno == EADDRNOTAVAIL;
        if (fd < 0)
            ignis__peer_error_set(error, IGNIS_DIAG_CHANNEL_IO, "%s%s", strerror(errno),
                                  errno == EADDRINUSE ? "; choose another port with IGNIS_COMM_PORT, on all ranks"
                                                      : "");
    }
    freeaddrinfo(all);
    if (fd >= 0 || !to_listen || !anywhere)
        return fd;
    /* the name belongs to a router: listen at all addresses of this host */
    snprintf(text, sizeof text, "0.0.0.0:%s", strrchr(path, ':') + 1);
    return ignis__tcp_open(error, text, 0, true);
}

static bool ignis__tcp_listen(ignis__peer_error *error, ignis__listener *listener)
{
    listener->file = ignis__tcp_open(error, listener->path, 0, true);
    return listener->file >= 0;
}

static bool ignis__tcp_accept(ignis__peer_error *error, ignis__listener *listener, ignis__connection *fresh)
{
    if (!ignis__socket_accept(error, listener, fresh))
        return false;
    ignis__tcp_tune(fresh->in);
    return true;
}

static bool ignis__tcp_connect(ignis__peer_error *error, ignis__connection *connection, bool *again)
{
    *again = true;
    connection->in = connection->out = ignis__tcp_open(error, connection->path, connection->attempt, false);
    return connection->in >= 0;
}

IGNIS__PRIVATE const ignis__connection_kind ignis__connection_tcp = {IGNIS_CHANNEL_DEFAULT,
                                                                     "tcp",
                                                                     false,
                                                                     false,
                                                                     ignis__tcp_listen,
                                                                     ignis__tcp_accept,
                                                                     NULL,
                                                                     ignis__tcp_connect,
                                                                     ignis__socket_write,
                                                                     ignis__socket_read,
                                                                     ignis__socket_wait,
                                                                     ignis__socket_alive,
                                                                     ignis__socket_shutdown,
                                                                     NULL,
                                                                     NULL,
                                                                     NULL};

/*  Adds the namespaces of this process to a hash: processes in the same ones can share memory. */
IGNIS__PRIVATE uint64_t ignis__host_namespaces(uint64_t hash)
{
    static const char *const spaces[] = {"/proc/self/ns/pid", "/proc/self/ns/ipc", "/proc/self/ns/net"};
    char text[256];
    ssize_t got;
    int i;
    for (i = 0; i < IGNIS__COUNT(spaces); i++) {
        got = readlink(spaces[i], text, sizeof text);
        if (got > 0)
            hash = ignis__hash(hash, text, (size_t)got);
    }
    return hash;
}

IGNIS__PRIVATE bool ignis__poller_open(const char *call, ignis__poller *poller)
{
    int i;
    bool ok;
    poller->bell[0] = poller->bell[1] = -1;
    poller->polls = (struct pollfd *)ignis__alloc_for(call, sizeof *poller->polls * ((size_t)poller->count + 1));
    if (!poller->polls)
        return false;
    ok = pipe(poller->bell) == 0;
    for (i = 0; ok && i < 2; i++)
        ok = fcntl(ignis__fd_register(poller->bell[i]), F_SETFD, FD_CLOEXEC) == 0 &&
             fcntl(poller->bell[i], F_SETFL, O_NONBLOCK) == 0;
    return ok || ignis__fail_false(IGNIS_DIAG_CHANNEL_IO, call, "the system returned no pipe: %s", strerror(errno));
}
IGNIS__PRIVATE void ignis__poller_close(ignis__poller *poller)
{
    int i;
    for (i = 0; i < 2; i++)
        ignis__fd_close(&poller->bell[i]);
    ignis__free(poller->polls);
}
IGNIS__PRIVATE void ignis__poller_wake(const ignis__poller *poller) { (void)!write(poller->bell[1], "", 1); }

/*  Waits until a message came, a connection ended, unsent bytes can go on, or a thread wakes it; at most
    `ms`, or without limit below 0. */
IGNIS__PRIVATE void ignis__poller_wait(ignis__poller *poller, int ms)
{
    struct pollfd *polls = poller->polls;
    char bytes[16];
    int i, ready;
    for (i = 0; i <= poller->count; i++) {
        const ignis__connection *connection = i < poller->count ? poller->connection[i] : NULL;
        polls[i].fd = i == poller->count ? poller->bell[0] : connection ? connection->in : -1;
        polls[i].events = POLLIN | IGNIS__POLL_HANGUP;
        if (connection && ignis__atomic_load(&connection->unsent))
            polls[i].events |= POLLOUT;
        polls[i].revents = 0;
    }
    ready = poll(polls, (nfds_t)poller->count + 1, ms);
    for (i = 0; i < poller->count; i++)
        poller->is_ready[i] = ready > 0 && (polls[i].revents & ~POLLOUT) != 0;
    if (ready > 0 && polls[poller->count].revents)
        (void)!read(poller->bell[0], bytes, sizeof bytes);
}

/*  Starts a thread that runs no signal handlers of the program. */
IGNIS__PRIVATE bool ignis__watcher_start(ignis__thread_handle *thread, void *(*run)(void *), void *context)
{
    sigset_t all, before;
    bool ok;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    ok = ignis__thread_start(thread, run, context);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return ok;
}

/*  Makes the name where a rank waits for those of its host; the random part keeps two jobs apart. */
IGNIS__PRIVATE bool ignis__local_name(const char *folder, int rank, uint64_t random, char *out, size_t size)
{
    return snprintf(out, size, "%s/rank%d-%08lx", folder, rank, (unsigned long)(random & 0xFFFFFFFFu)) < (int)size;
}
IGNIS__PRIVATE void ignis__local_path(const char *name, char path[IGNIS__PATH_MAX])
{
    snprintf(path, IGNIS__PATH_MAX, "%s", name);
}

/*  Writes the addresses of this host of a family as "a,b,", as far as they fit. */
static void ignis__id_addresses(ignis__id *id, int family)
{
    struct ifaddrs *all = NULL, *at;
    if (getifaddrs(&all) != 0)
        return;
    for (at = all; at; at = at->ifa_next) {
        char text[80];
        size_t length = strlen(id->address);
        if (at->ifa_addr && at->ifa_addr->sa_family == family &&
            getnameinfo(at->ifa_addr, family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6),
                        text, sizeof text, NULL, 0, NI_NUMERICHOST) == 0 &&
            strncmp(text, "127.", 4) != 0 && strcmp(text, "::1") != 0 && strncmp(text, "fe80:", 5) != 0 &&
            length + strlen(text) + 17 < sizeof id->address)
            snprintf(id->address + length, sizeof id->address - length, "%s,", text);
    }
    freeifaddrs(all);
}

/*  Opens the socket where rank 0 will listen, at a port that the system chooses, and writes the addresses of
    this host. */
IGNIS__PRIVATE bool ignis__id_listen(ignis__id *id, ignis__file *listener)
{
    struct sockaddr_storage bound;
    struct addrinfo any;
    socklen_t size = sizeof bound;
    memset(&bound, 0, sizeof bound); /* any address, any port: all zero */
    memset(&any, 0, sizeof any);
    ignis__id_addresses(id, AF_INET);
    if (!*id->address)
        ignis__id_addresses(id, AF_INET6);
    any.ai_family = strchr(id->address, ':') ? AF_INET6 : AF_INET;
    any.ai_socktype = SOCK_STREAM;
    any.ai_addr = (struct sockaddr *)(void *)&bound;
    any.ai_addrlen = any.ai_family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
    bound.ss_family = (sa_family_t)any.ai_family;
    *listener = ignis__tcp_try(&any, true);
    if (*listener < 0 || getsockname(*listener, any.ai_addr, &size) != 0)
        return false;
    snprintf(id->address + strlen(id->address), sizeof id->address - strlen(id->address),
             "%s:%d", /* the port is at the same place in both structs */
             any.ai_family == AF_INET ? "127.0.0.1" : "::1",
             ntohs(((const struct sockaddr_in *)(const void *)&bound)->sin_port));
    return true;
}

#endif

/*  >>job.host - which ranks can share memory

    Two ranks are of one host if system and namespaces are equal.
    Uses: the functions of the system.
    Invariants: IGNIS_COMM_HOST overrides the answer, for tests. */

/*  Returns a hash of this system and its namespaces, or of IGNIS_COMM_HOST. */
IGNIS__PRIVATE uint64_t ignis__job_host(void)
{
    const char *named = ignis__env("IGNIS_COMM_HOST");
    return named && *named ? ignis__hash(IGNIS__HASH_START, named, strlen(named))
                           : ignis__host_namespaces(ignis__host_hash());
}

/*  >>job.unique_id - unique ids: a rendezvous and its secret, distributed by the program

    ignis_comm_unique_id opens the socket where rank 0 will listen.
    Uses: listeners.
    Invariants: an id is used for one rendezvous, by the process that created it.
    Locks: ignis__ids.lock around the list. */

/*  Listeners of ids that this process has created. */
typedef struct ignis__id_place {
    struct ignis__id_place *next;
    unsigned char secret[IGNIS__SECRET];
    ignis__file listener;
} ignis__id_place;

static struct {
    ignis__mutex lock;
    ignis__id_place *first;
} ignis__ids = {IGNIS__MUTEX_INIT, NULL};

/*  Takes the listener of an id, or of any (NULL). False if the id is unknown. */
IGNIS__PRIVATE bool ignis__id_take(const unsigned char *secret, ignis__file *listener)
{
    ignis__id_place **at, *place;
    ignis__mutex_lock(&ignis__ids.lock);
    for (at = &ignis__ids.first; *at && secret && memcmp((*at)->secret, secret, IGNIS__SECRET) != 0; at = &(*at)->next)
        ;
    if ((place = *at) != NULL) {
        *at = place->next;
        *listener = place->listener;
        ignis__free(place);
    }
    ignis__mutex_unlock(&ignis__ids.lock);
    return place != NULL;
}

static void ignis__ids_close(const char *call)
{
    ignis__file listener = IGNIS__NO_FILE;
    (void)call;
    while (ignis__id_take(NULL, &listener))
        ignis__peer_file_close(&listener);
}

IGNIS_API IGNIS__COLD ignis_status ignis_comm_unique_id(ignis_comm_id *out)
{
    static const char call[] = "ignis_comm_unique_id";
    ignis__id_place *place;
    ignis__id id;
    char why[256];
    place = ignis__collective_enter(call) && ignis__check_not_null(call, "id", out)
                ? (ignis__id_place *)ignis__alloc_for(call, sizeof *place)
                : NULL;
    if (!place)
        return ignis__failed();
    memset(&id, 0, sizeof id);
    memcpy(id.magic, "IGNISID1", sizeof id.magic);
    if (!ignis__id_listen(&id, &place->listener) || !ignis__random_bytes(id.secret, sizeof id.secret)) {
        ignis__system_error(why, sizeof why);
        ignis__fail(IGNIS_DIAG_COMM_RENDEZVOUS, call, "this process cannot listen: %s", why);
        ignis__peer_file_close(&place->listener);
        ignis__free(place);
        return ignis__failed();
    }
    memcpy(place->secret, id.secret, sizeof place->secret);
    ignis__section_use(IGNIS__SECTION_JOB, ignis__ids_close);
    ignis__mutex_lock(&ignis__ids.lock);
    place->next = ignis__ids.first;
    ignis__ids.first = place;
    ignis__mutex_unlock(&ignis__ids.lock);
    memcpy(out, &id, sizeof *out);
    return IGNIS_OK;
}

/*  >>job.message - messages of a job, and the state of each rank

    One watcher thread reads the messages of all ranks and notices who died; it tells the communicators.
    Uses: connections, the poller, threads.
    Invariants: a rank counts as dead when its connection ends without a goodbye; messages of one rank are
    delivered in order.
    Locks: job->lock guards links, watches and messages; take the locks of a connection first. */

enum { IGNIS__JOB_QUEUED = 1024 }; /* messages of one rank that no agreement has asked for */

/*  Returns the connection that leads to a rank. */
static ignis__connection *ignis__job_route(ignis__job *job, int to)
{
    return job->links[job->links[to].connection ? to : 0].connection;
}

IGNIS__PRIVATE ignis__job_outgoing ignis__job_outgoing_make(int from, int to, ignis__job_kind kind, uint64_t key,
                                                            const void *data, size_t size)
{
    ignis__job_outgoing message;
    message.header.from = from;
    message.header.to = to;
    message.header.key = key;
    message.kind = kind;
    message.data = data;
    message.size = size;
    message.fd = -1;
    return message;
}

/*  Sends one message. False: the peer is gone, or *late. */
IGNIS__PRIVATE bool ignis__job_send_message(ignis__job *job, const ignis__job_outgoing *message, int64_t deadline,
                                            bool *late)
{
    unsigned char bytes[sizeof(ignis__job_header) + IGNIS__JOB_DATA];
    ignis__connection *connection = ignis__job_route(job, message->header.to);
    ignis__peer_error error;
    const ignis__deadline until = ignis__deadline_at(deadline);
    bool ok;
    *late = false;
    memcpy(bytes, &message->header, sizeof message->header);
    if (message->size)
        memcpy(bytes + sizeof message->header, message->data, message->size);
    if (!connection || (message->fd >= 0 && !connection->kind->descriptors))
        return false;
    ignis__mutex_lock(&connection->send_lock);
    ok = ignis__connection_send(&error, connection, (int)IGNIS__MESSAGE_JOB + (int)message->kind, bytes,
                                sizeof message->header + message->size, &message->fd, message->fd >= 0, &until);
    *late = !ok && error.diagnostic == IGNIS_DIAG_CHANNEL_TIMEOUT;
    if (!ok && error.diagnostic == IGNIS_DIAG_CHANNEL_IO) /* the watcher knows more about dead ranks */
        ignis__log(IGNIS_LOG_WARNING, error.diagnostic, "rank %d cannot send to rank %d: %s", (int)message->header.from,
                   (int)message->header.to, error.why);
    ignis__mutex_unlock(&connection->send_lock);
    if (ignis__atomic_load(&connection->unsent))
        ignis__poller_wake(&job->poller); /* the watcher sends the rest */
    return ok;
}

/*  Sends a short message without a reply. Errors are ignored: a dead peer is detected elsewhere. */
IGNIS__PRIVATE bool ignis__job_send(ignis__job *job, int to, ignis__job_kind kind, uint64_t key, const void *data,
                                    size_t size)
{
    const ignis__job_outgoing message = ignis__job_outgoing_make(job->rank, to, kind, key, data, size);
    bool late;
    return ignis__job_send_message(job, &message, ignis__monotonic_ns() + 200 * IGNIS__MILLISECOND, &late);
}

IGNIS__PRIVATE void ignis__job_send_all(ignis__job *job, const int *member, int count, ignis__job_kind kind,
                                        uint64_t key)
{
    int i;
    for (i = 0; job->links && i < count; i++)
        if (member[i] != job->rank)
            (void)ignis__job_send(job, member[i], kind, key, NULL, 0);
}

/*  Tells the other ranks of a communicator what broke it. */
IGNIS__PRIVATE void ignis__job_send_fault(ignis__job *job, const int *member, int count, uint64_t key,
                                          const ignis__job_fault *cause)
{
    int i;
    for (i = 0; job->links && i < count; i++)
        if (member[i] != job->rank)
            (void)ignis__job_send(job, member[i], IGNIS__JOB_FAULT, key, cause, sizeof *cause);
}

/*  Tells an event to the communicators of a rank, or to the one with a key. The job is locked. */
static void ignis__job_notify(ignis__job *job, ignis__job_event event, int rank, uint64_t key)
{
    ignis__job_watch *watch;
    int i;
    for (watch = job->watches; watch; watch = watch->next) {
        for (i = 0; i < watch->count; i++) {
            if (watch->member[i] != rank || (key && key != watch->key))
                continue;
            watch->gone[i] |= event == IGNIS__JOB_LEFT;
            watch->notify(watch->owner, event, i, 0);
        }
    }
    ignis__condition_wake(&job->changed);
}

/*  Tells a failure that another rank has reported to the communicator with a key. The job is locked. */
static void ignis__job_notify_fault(ignis__job *job, uint64_t key, const ignis__job_fault *cause)
{
    ignis__job_watch *watch;
    int i;
    for (watch = job->watches; watch; watch = watch->next) {
        if (watch->key != key)
            continue;
        for (i = watch->count - 1; i >= 0 && watch->member[i] != cause->rank; i--)
            ;
        watch->notify(watch->owner, IGNIS__JOB_FAILED, i, cause->code);
    }
    ignis__condition_wake(&job->changed);
}

/*  Marks a rank as dead. Rank 0 tells the ranks that have no connection to it. The job is locked. */
static void ignis__job_rank_died(ignis__job *job, int rank)
{
    int32_t number = rank;
    int i;
    if (rank == job->rank || job->links[rank].state != IGNIS__JOB_ALIVE)
        return;
    job->links[rank].state = IGNIS__JOB_DEAD;
    ignis__job_notify(job, IGNIS__JOB_DIED, rank, 0);
    for (i = 1; i < job->size && job->rank == 0; i++)
        if (job->ranks[i].host != job->ranks[rank].host && job->links[i].state == IGNIS__JOB_ALIVE)
            (void)ignis__job_send(job, i, IGNIS__JOB_LOST, 0, &number, sizeof number);
    for (i = 1; i < job->size && rank == 0; i++)
        if (!job->links[i].connection)
            ignis__job_rank_died(job, i);
}

/*  Keeps a record until an agreement asks for it. False if too many are waiting. */
static bool ignis__job_queue(ignis__job *job, const ignis__job_header *header, ignis__connection *connection,
                             const unsigned char *data, size_t size)
{
    ignis__job_message *message = (ignis__job_message *)ignis__alloc(sizeof *message), **last;
    ignis__job_link *from = &job->links[header->from];
    bool ok;
    if (!message)
        return false;
    message->key = header->key;
    message->size = size;
    message->fd = connection->inbox_fd_count ? connection->inbox_fds[0] : -1;
    connection->inbox_fd_count = 0; /* owned by the message now */
    memcpy(message->data, data, size);
    ignis__mutex_lock(&job->lock);
    for (last = &from->first; *last; last = &(*last)->next)
        ;
    *last = message;
    ok = ++from->queued <= IGNIS__JOB_QUEUED;
    ignis__condition_wake(&job->changed);
    ignis__mutex_unlock(&job->lock);
    return ok;
}

/*  Handles the message in the inbox. False: it breaks the protocol, so the sender counts as dead. */
static bool ignis__job_deliver(ignis__job *job, int through, ignis__connection *connection)
{
    const ignis__message_header frame = ignis__message_header_read(connection);
    const unsigned char *data = connection->inbox + sizeof frame + sizeof(ignis__job_header);
    const size_t size = frame.size - sizeof(ignis__job_header);
    const int kind = (int)frame.type - (int)IGNIS__MESSAGE_JOB;
    ignis__job_header header;
    ignis__job_outgoing forwarded;
    ignis__job_fault cause;
    int32_t number = 0;
    bool ok, late;
    if (frame.size < sizeof header || size > IGNIS__JOB_DATA || frame.fd_count > 1)
        return false;
    memcpy(&header, connection->inbox + sizeof frame, sizeof header);
    if (header.from < 0 || header.from >= job->size || header.from == job->rank || header.to < 0 ||
        header.to >= job->size || (header.from != through && (through != 0 || job->links[header.from].connection)))
        return false;
    if (header.to != job->rank) { /* rank 0 forwards messages between hosts */
        if (job->rank != 0 || !job->links[header.to].connection)
            return false;
        forwarded = ignis__job_outgoing_make(header.from, header.to, (ignis__job_kind)kind, header.key, data, size);
        (void)ignis__job_send_message(job, &forwarded, ignis__monotonic_ns() + 1000 * IGNIS__MILLISECOND, &late);
        return true;
    }
    if (kind == IGNIS__JOB_RECORD)
        return ignis__job_queue(job, &header, connection, data, size);
    ignis__mutex_lock(&job->lock);
    ok = true;
    switch (kind) {
    case IGNIS__JOB_LEAVE: ignis__job_notify(job, IGNIS__JOB_LEFT, header.from, header.key); break;
    case IGNIS__JOB_ABORT: ignis__job_notify(job, IGNIS__JOB_ABORTED, header.from, header.key); break;
    case IGNIS__JOB_FAULT:
        ok = size == sizeof cause;
        if (ok) {
            memcpy(&cause, data, sizeof cause);
            ignis__job_notify_fault(job, header.key, &cause);
        }
        break;
    case IGNIS__JOB_BYE:
        if (job->links[header.from].state == IGNIS__JOB_ALIVE) {
            job->links[header.from].state = IGNIS__JOB_GONE;
            ignis__job_notify(job, IGNIS__JOB_LEFT, header.from, 0);
        }
        break;
    case IGNIS__JOB_BEAT: break;
    case IGNIS__JOB_LOST:
        ok = header.from == 0 && size == sizeof number;
        if (ok)
            memcpy(&number, data, sizeof number);
        ok = ok && number > 0 && number < job->size;
        if (ok)
            ignis__job_rank_died(job, number);
        break;
    default: ok = false;
    }
    ignis__mutex_unlock(&job->lock);
    return ok;
}

/*  Reads the messages of a rank, and sends what was left. Any thread may call it. */
static void ignis__job_read(ignis__job *job, int rank)
{
    ignis__connection *connection = job->links[rank].connection;
    ignis__peer_error error;
    bool valid = true;
    ignis__mutex_lock(&connection->receive_lock);
    if (!job->links[rank].ended) { /* changes with both locks held */
        ignis__connection_send_rest(connection);
        while (valid && ignis__connection_receive(&error, connection, &ignis__deadline_now)) {
            ignis__atomic_store(&job->links[rank].heard, 1);
            valid = ignis__job_deliver(job, rank, connection);
            ignis__inbox_remove(connection);
        }
        if (!valid || error.diagnostic != IGNIS_DIAG_CHANNEL_TIMEOUT) { /* no more messages will come */
            ignis__mutex_lock(&job->lock);
            job->links[rank].ended = true;
            ignis__job_rank_died(job, rank);
            ignis__mutex_unlock(&job->lock);
        }
    }
    ignis__mutex_unlock(&connection->receive_lock);
}

/*  Reads all messages that have come, without waiting for the watcher. */
IGNIS__PRIVATE void ignis__job_catch_up(ignis__job *job)
{
    int i;
    for (i = 0; job->links && i < job->size; i++)
        if (job->links[i].connection)
            ignis__job_read(job, i);
}

/*  Sends a message without waiting: it is dropped if another thread sends, or if the peer reads nothing. */
static void ignis__job_beat(ignis__job *job, int rank)
{
    const ignis__job_outgoing message = ignis__job_outgoing_make(job->rank, rank, IGNIS__JOB_BEAT, 0, NULL, 0);
    ignis__connection *connection = job->links[rank].connection;
    ignis__peer_error error;
    if (!ignis__mutex_try(&connection->send_lock))
        return;
    (void)ignis__connection_send(&error, connection, (int)IGNIS__MESSAGE_JOB + (int)message.kind, &message.header,
                                 sizeof message.header, NULL, 0, &ignis__deadline_now);
    ignis__mutex_unlock(&connection->send_lock);
}

/*  Ends the connection to a rank that was silent, as if the rank had died. If it only was stopped, it learns of that
    when it goes on. */
static void ignis__job_end_silent(ignis__job *job, int rank)
{
    ignis__connection *connection = job->links[rank].connection;
    ignis__log(IGNIS_LOG_WARNING, IGNIS_DIAG_COMM_PEER,
               "rank %d: nothing came from rank %d for %g s, it counts as dead", job->rank, rank,
               (double)job->ranks[job->rank].heartbeat_ms / 1e3);
    ignis__mutex_lock(&connection->receive_lock);
    ignis__mutex_lock(&job->lock);
    job->links[rank].ended = true;
    ignis__job_rank_died(job, rank);
    ignis__mutex_unlock(&job->lock);
    if (connection->kind->shutdown)
        connection->kind->shutdown(connection);
    ignis__mutex_unlock(&connection->receive_lock);
}

/*  Sends a heartbeat to each connected rank, and ends the connections of those that sent nothing for
    IGNIS__JOB_BEATS beats. Beats are counted instead of time, which also passes while this process is stopped. */
static void ignis__job_beat_all(ignis__job *job)
{
    int i;
    for (i = 0; i < job->size; i++) {
        ignis__job_link *link = &job->links[i];
        if (!link->connection || link->ended)
            continue;
        link->silent = ignis__atomic_load(&link->heard) ? 0 : link->silent + 1;
        ignis__atomic_store(&link->heard, 0);
        if (link->silent > IGNIS__JOB_BEATS)
            ignis__job_end_silent(job, i);
        else
            ignis__job_beat(job, i);
    }
}

/*  Returns how long the watcher may wait for messages, in ms; -1: without limit. */
static int ignis__job_pause_ms(bool ticking, int64_t beat_ns, int64_t next_beat)
{
    const int64_t left = (next_beat - ignis__monotonic_ns()) / IGNIS__MILLISECOND + 1;
    if (!beat_ns || (ticking && left > IGNIS__JOB_TICK_MS))
        return ticking ? IGNIS__JOB_TICK_MS : -1;
    return left > 0 ? (int)left : 0;
}

IGNIS__PRIVATE IGNIS__THREAD_RESULT ignis__job_watcher(void *pointer)
{
    ignis__job *job = (ignis__job *)pointer;
    ignis__poller *poller = &job->poller;
    const int64_t beat_ns = job->ranks[job->rank].heartbeat_ms * IGNIS__MILLISECOND / IGNIS__JOB_BEATS;
    int64_t ticked = 0, next_beat = ignis__monotonic_ns() + beat_ns;
    for (;;) {
        int i;
        bool ending, ticking = false;
        ignis__job_watch *watch;
        ignis__mutex_lock(&job->lock);
        for (i = 0; i < job->size; i++)
            poller->connection[i] = job->links[i].ended ? NULL : job->links[i].connection;
        ending = job->ending;
        for (watch = job->watches; watch; watch = watch->next)
            ticking |= watch->ticks;
        if (ticking && ignis__monotonic_ns() - ticked >= (int64_t)IGNIS__JOB_TICK_MS * 1000000) {
            for (watch = job->watches; watch; watch = watch->next)
                if (watch->ticks)
                    watch->notify(watch->owner, IGNIS__JOB_TICK, -1, 0);
            ticked = ignis__monotonic_ns();
        }
        ignis__mutex_unlock(&job->lock);
        if (ending)
            return 0;
        ignis__poller_wait(poller, ignis__job_pause_ms(ticking, beat_ns, next_beat));
        for (i = 0; i < job->size; i++) {
            const ignis__connection *connection = poller->connection[i];
            if (connection && (poller->is_ready[i] || ignis__atomic_load(&connection->unsent)))
                ignis__job_read(job, i);
        }
        if (beat_ns && ignis__monotonic_ns() >= next_beat) {
            ignis__job_beat_all(job);
            next_beat = ignis__monotonic_ns() + beat_ns;
        }
    }
}

/*  Destroys a job in any state. */
IGNIS__COLD IGNIS__PRIVATE void ignis__job_end(ignis__job *job)
{
    int i;
    if (job->watched) {
        for (i = 0; i < job->size; i++)
            if (i != job->rank)
                (void)ignis__job_send(job, i, IGNIS__JOB_BYE, 0, NULL, 0);
        ignis__mutex_lock(&job->lock);
        job->ending = true;
        ignis__mutex_unlock(&job->lock);
        ignis__poller_wake(&job->poller);
        ignis__thread_join(job->watcher);
    }
    for (i = 0; job->links && i < job->size; i++) {
        while (job->links[i].first) {
            ignis__job_message *message = job->links[i].first;
            job->links[i].first = message->next;
            ignis__fd_close(&message->fd);
            ignis__free(message);
        }
        ignis__connection_destroy(job->links[i].connection);
    }
    if (job->has_poller)
        ignis__poller_close(&job->poller);
    if (job->ready)
        ignis__condition_end(&job->changed);
    ignis__free(job->links);
    ignis__free(job->poller.connection);
    ignis__free(job->poller.is_ready);
    ignis__free(job->ranks);
    ignis__free(job);
}

/*  Registers a watch: from here on it is told of its members. */
IGNIS__PRIVATE void ignis__job_watch_begin(ignis__job *job, ignis__job_watch *watch)
{
    int i;
    if (!job->links)
        return;
    ignis__mutex_lock(&job->lock);
    watch->next = job->watches;
    job->watches = watch;
    for (i = 0; i < watch->count; i++)
        if (job->links[watch->member[i]].state == IGNIS__JOB_DEAD)
            watch->notify(watch->owner, IGNIS__JOB_DIED, i, 0);
    ignis__mutex_unlock(&job->lock);
}

/*  Makes a watch tick: from here on it is told that time passes. */
IGNIS__PRIVATE void ignis__job_watch_tick(ignis__job *job, ignis__job_watch *watch)
{
    if (!job->links)
        return;
    ignis__mutex_lock(&job->lock);
    watch->ticks = true;
    ignis__mutex_unlock(&job->lock);
    ignis__poller_wake(&job->poller);
}

/*  Removes a watch and the messages for its key. */
IGNIS__PRIVATE void ignis__job_watch_end(ignis__job *job, ignis__job_watch *watch)
{
    ignis__job_watch **at;
    int i;
    if (!job->links)
        return;
    ignis__mutex_lock(&job->lock);
    for (at = &job->watches; *at && *at != watch; at = &(*at)->next)
        ;
    if (*at)
        *at = watch->next;
    for (i = 0; i < job->size; i++) {
        ignis__job_message **message = &job->links[i].first;
        while (*message) {
            ignis__job_message *old = *message;
            if (old->key != watch->key) {
                message = &old->next;
                continue;
            }
            *message = old->next;
            job->links[i].queued--;
            ignis__fd_close(&old->fd);
            ignis__free(old);
        }
    }
    ignis__mutex_unlock(&job->lock);
}

/*  Returns the state of a rank for a communicator (NULL: for the job). The job is locked. */
IGNIS__PRIVATE ignis__job_state ignis__job_state_in(const ignis__job *job, const ignis__job_watch *watch, int rank)
{
    int i;
    if (job->links[rank].state == IGNIS__JOB_ALIVE)
        for (i = 0; watch && i < watch->count; i++)
            if (watch->member[i] == rank && watch->gone[i])
                return IGNIS__JOB_GONE;
    return job->links[rank].state;
}

/*  Tells if a rank has died, or left a communicator. */
IGNIS__PRIVATE bool ignis__job_rank_is_absent(ignis__job *job, const ignis__job_watch *watch, int rank)
{
    bool absent;
    if (!job->links)
        return false;
    ignis__mutex_lock(&job->lock);
    absent = ignis__job_state_in(job, watch, rank) != IGNIS__JOB_ALIVE;
    ignis__mutex_unlock(&job->lock);
    return absent;
}

/*  >>job.agreement - agreements: ranks exchange records, all or none

    In each step every rank gives a record and receives those of all. Nothing is reported here.
    Uses: messages of the job.
    Invariants: no rank succeeds in a step unless all have given their records; records of abandoned attempts
    are never used.
    Locks: the job's lock, released while waiting. */

/*  The start of each record. */
typedef struct ignis__agreement_header {
    uint32_t attempt, print;
} ignis__agreement_header;

static ignis__agreement_header ignis__agreement_header_read(const ignis__job_message *message)
{
    ignis__agreement_header header;
    memset(&header, 0, sizeof header);
    memcpy(&header, message->data, message->size < sizeof header ? 0 : sizeof header);
    return header;
}

/*  Tells if the sender of a message has given up the attempt that the message belongs to. */
static bool ignis__agreement_is_void(const ignis__job_message *message)
{
    ignis__agreement_header header = ignis__agreement_header_read(message), later = header;
    const ignis__job_message *next = message->next;
    for (; next && later.print != IGNIS__AGREEMENT_GIVEN_UP; next = next->next)
        if (next->key == message->key && ignis__agreement_header_read(next).attempt == header.attempt)
            later = ignis__agreement_header_read(next);
    return later.print == IGNIS__AGREEMENT_GIVEN_UP;
}

/*  Takes the next record of a rank for this agreement from its messages. NULL if none has come, or the
    failure is noted. Drops records of earlier attempts, of attempts that the rank has given up, and of kinds
    that count less. The job is locked. */
static ignis__job_message *ignis__agreement_find(ignis__agreement *agreement, int rank)
{
    ignis__job_link *link = &agreement->job->links[rank];
    ignis__job_message **at = &link->first, *message;
    while ((message = *at) != NULL) {
        ignis__agreement_header header = ignis__agreement_header_read(message);
        bool stale = ignis__agreement_is_void(message) || header.attempt < agreement->attempt ||
                     (header.attempt == agreement->attempt && header.print >> 28 < agreement->print >> 28);
        if (message->key != agreement->key) {
            at = &message->next;
            continue;
        }
        if (!stale && header.attempt > agreement->attempt) {
            agreement->attempt = header.attempt;
            agreement->overtaken = true;
            return NULL;
        }
        if (!stale && header.print != agreement->print) {
            agreement->failure.reason = IGNIS__AGREEMENT_DIFFERS;
            agreement->failure.rank = rank;
            agreement->failure.theirs = header.print;
            return NULL;
        }
        *at = message->next;
        link->queued--;
        if (!stale)
            return message;
        ignis__fd_close(&message->fd);
        ignis__free(message);
    }
    return NULL;
}

/*  Takes the records that have come. Returns how many are missing; -1 if the failure is noted. The job is
    locked. */
static int ignis__agreement_take(ignis__agreement *agreement, size_t size, void *all, int *fds)
{
    int i, missing = 0;
    for (i = 0; i < agreement->count; i++) {
        ignis__job_message *message;
        if (ignis__bit(agreement->came, i))
            continue;
        message = ignis__agreement_find(agreement, agreement->member[i]);
        if (agreement->overtaken)
            return -1;
        if (message ||
            (agreement->failure.reason == IGNIS__AGREEMENT_DIFFERS && agreement->failure.rank == agreement->member[i]))
            ignis__bit_set(agreement->came, i);
        else if (!missing++ && agreement->failure.reason == IGNIS__AGREEMENT_LATE)
            agreement->failure.rank = agreement->member[i];
        if (!message)
            continue;
        if (message->size == sizeof(ignis__agreement_header) + size)
            memcpy((char *)all + (size_t)i * size, message->data + sizeof(ignis__agreement_header), size);
        else
            memset((char *)all + (size_t)i * size, 0, size);
        if (fds)
            fds[i] = message->fd;
        else
            ignis__fd_close(&message->fd);
        ignis__free(message);
    }
    if (agreement->failure.reason == IGNIS__AGREEMENT_DIFFERS)
        return -1;
    /* a rank that died after its record came stops the others, too */
    for (i = 0; missing && i < agreement->count; i++) {
        ignis__job_state state = ignis__job_state_in(agreement->job, agreement->watch, agreement->member[i]);
        bool here = i == agreement->me || (agreement->without && ignis__bit(agreement->without, i));
        if (!here && (state == IGNIS__JOB_DEAD || (state == IGNIS__JOB_GONE && !ignis__bit(agreement->came, i)))) {
            agreement->failure.reason = IGNIS__AGREEMENT_LOST;
            agreement->failure.rank = agreement->member[i];
            return -1;
        }
    }
    return missing;
}

/*  Runs one step: every rank gives a record of `size` bytes, and a descriptor unless it is -1, and receives
    all: all[i] and fds[i] of member i. False: agreement->overtaken or agreement->failure tells why, and no
    descriptor is kept. Nothing is reported. */
IGNIS__PRIVATE bool ignis__agreement_step(ignis__agreement *agreement, const void *mine, size_t size, void *all, int fd,
                                          int *fds)
{
    ignis__job *job = agreement->job;
    unsigned char record[IGNIS__JOB_DATA];
    ignis__agreement_header header;
    ignis__job_outgoing message;
    bool expired = false, late = false;
    int i, missing = 0;
    agreement->overtaken = false;
    agreement->failed = true;
    agreement->failure.reason = IGNIS__AGREEMENT_LATE;
    header.attempt = agreement->attempt;
    header.print = agreement->print;
    memcpy(record, &header, sizeof header);
    memcpy(record + sizeof header, mine, size);
    memset(agreement->came, 0, sizeof agreement->came);
    memcpy((char *)all + (size_t)agreement->me * size, mine, size);
    for (i = 0; fds && i < agreement->count; i++)
        fds[i] = -1;
    for (i = 0; i < agreement->count; i++) {
        bool waits = !(agreement->without && ignis__bit(agreement->without, i));
        if (i == agreement->me || !waits)
            ignis__bit_set(agreement->came, i);
        if (i == agreement->me)
            continue;
        message = ignis__job_outgoing_make(job->rank, agreement->member[i], IGNIS__JOB_RECORD, agreement->key, record,
                                           sizeof header + size);
        message.fd = waits ? fd : -1;
        if (ignis__job_send_message(job, &message, waits ? agreement->deadline : 0, &late))
            continue;
        if (late && waits) {
            agreement->failure.rank = agreement->member[i];
            return false;
        }
    }
    if (agreement->count == 1) {
        agreement->failed = false;
        return true;
    }
    ignis__mutex_lock(&job->lock);
    while ((missing = ignis__agreement_take(agreement, size, all, fds)) > 0 && !expired)
        expired = !ignis__condition_wait_until(&job->changed, &job->lock, agreement->deadline);
    ignis__mutex_unlock(&job->lock);
    for (i = 0; missing && fds && i < agreement->count; i++)
        ignis__fd_close(&fds[i]);
    agreement->failed = missing != 0;
    return !agreement->failed;
}

/*  Tells the other ranks that this rank gives up, so that its earlier records mislead no rank that comes
    later. Ranks in another agreement see that the kinds differ. */
IGNIS__PRIVATE void ignis__agreement_give_up(const ignis__agreement *agreement)
{
    ignis__agreement_header header;
    int i;
    header.attempt = agreement->attempt;
    header.print = IGNIS__AGREEMENT_GIVEN_UP;
    for (i = 0; i < agreement->count; i++) {
        bool at_it = ignis__bit(agreement->came, i) && !(agreement->without && ignis__bit(agreement->without, i));
        if (i != agreement->me && !(agreement->failure.reason == IGNIS__AGREEMENT_DIFFERS && at_it))
            (void)ignis__job_send(agreement->job, agreement->member[i], IGNIS__JOB_RECORD, agreement->key, &header,
                                  sizeof header);
    }
}

/*  >>job.rendezvous - rendezvous: how the ranks of a job meet

    All ranks connect to rank 0, which sends them the table of ranks or the reason why they cannot start. Then
    the ranks of a host connect with each other.
    Uses: listeners, messages.
    Invariants: all ranks succeed or all are told why not; no wait exceeds the timeout.
    Locks: none; one thread per job works here. */

/*  The answer of rank 0 when all ranks have come; the table follows, unless it tells why they cannot take
    part. */
typedef struct ignis__answer {
    int32_t refused; /* a diagnostic, or 0 */
    int32_t unused;
    uint64_t key, origin;
    unsigned char secret[IGNIS__SECRET];
    char why[256];
} ignis__answer;

/*  The claim of a rank to another one of its host. */
typedef struct ignis__mesh_claim {
    int32_t from, to;
} ignis__mesh_claim;

/*  A rendezvous in one rank. */
typedef struct ignis__rendezvous {
    const char *call;
    ignis__job *job;
    const ignis__place *place;
    int64_t deadline;
    ignis__connection **connections;   /* on rank 0: to each rank; on others: to rank 0, at index 0 */
    ignis__endpoint address;           /* of rank 0 */
    ignis__listener *listener, *local; /* of rank 0 for all; of this rank for those of its host */
    int came;
    int failed; /* a rank that cannot take part, -1: none */
} ignis__rendezvous;

static bool ignis__rendezvous_send(ignis__peer_error *error, ignis__connection *connection, ignis__job_kind kind,
                                   const void *data, size_t size, int64_t deadline)
{
    const ignis__deadline until = ignis__deadline_at(deadline);
    return ignis__connection_send(error, connection, (int)IGNIS__MESSAGE_JOB + (int)kind, data, size, NULL, 0, &until);
}

static bool ignis__rendezvous_receive(ignis__peer_error *error, ignis__connection *connection, ignis__job_kind kind,
                                      void *data, size_t size, int64_t deadline)
{
    const ignis__deadline until = ignis__deadline_at(deadline);
    if (!ignis__connection_receive(error, connection, &until))
        return false;
    if (ignis__message_header_read(connection).type != (int)IGNIS__MESSAGE_JOB + (int)kind ||
        ignis__message_header_read(connection).size != size)
        return ignis__peer_error_set(error, IGNIS_DIAG_CHANNEL_MESSAGE, "it sent an unexpected message");
    memcpy(data, connection->inbox + sizeof(ignis__message_header), size);
    ignis__inbox_remove(connection);
    return true;
}

/*  Terminates all texts in the description of a rank. */
static void ignis__job_rank_clean(ignis__job_rank *rank)
{
    rank->path[sizeof rank->path - 1] = 0;
    rank->pci[sizeof rank->pci - 1] = 0;
    rank->failed[sizeof rank->failed - 1] = 0;
}

/*  Admits an authenticated rank. False: it is told why it cannot take part. */
static bool ignis__rendezvous_admit(ignis__rendezvous *rendezvous, ignis__peer_error *error,
                                    ignis__connection *connection)
{
    ignis__job *job = rendezvous->job;
    ignis__job_rank rank;
    const ignis_diagnostic no = IGNIS_DIAG_CHANNEL_MESSAGE;
    if (!ignis__claim_read(error, connection, &rank, sizeof rank))
        return false;
    ignis__job_rank_clean(&rank);
    if (rank.size != job->size)
        return ignis__peer_error_set(error, no, "its size is %d; rank 0 has size %d", (int)rank.size, job->size);
    if (rank.rank < 1 || rank.rank >= job->size)
        return ignis__peer_error_set(error, no, "it claims rank %d, %s", (int)rank.rank,
                                     rank.rank == 0 ? "which is rank 0 itself" : "which is out of range");
    if (rendezvous->connections[rank.rank])
        return ignis__peer_error_set(error, no, "rank %d has already come, as process %d", (int)rank.rank,
                                     (int)job->ranks[rank.rank].pid);
    if (!ignis__connection_welcome(error, connection, IGNIS__HANDSHAKE_BYTES))
        return false;
    if (*rank.failed) { /* those that come soon are told, too */
        const int64_t soon = ignis__monotonic_ns() + 2000 * IGNIS__MILLISECOND;
        rendezvous->failed = rank.rank;
        rendezvous->deadline = soon < rendezvous->deadline ? soon : rendezvous->deadline;
    }
    job->ranks[rank.rank] = rank;
    rendezvous->connections[rank.rank] = connection;
    rendezvous->came++;
    return true;
}

/*  Drops ranks that disconnected while rank 0 waits for the others. No rank sends before the answer. */
static void ignis__rendezvous_drop_lost(ignis__rendezvous *rendezvous)
{
    ignis__job *job = rendezvous->job;
    int i;
    for (i = 0; i < job->size; i++)
        job->poller.connection[i] = rendezvous->connections[i];
    ignis__poller_wait(&job->poller, 0);
    for (i = 0; i < job->size; i++)
        if (job->poller.is_ready[i]) {
            ignis__connection_destroy(rendezvous->connections[i]);
            rendezvous->connections[i] = NULL;
            rendezvous->came--;
        }
}

/*  Lists the ranks that rank 0 still waits for: "1, 2, 5". */
static void ignis__rendezvous_missing(const ignis__rendezvous *rendezvous, char *out, size_t size)
{
    ignis__string_writer text;
    int i;
    ignis__string_begin(&text, out, size);
    for (i = 1; i < rendezvous->job->size; i++)
        if (!rendezvous->connections[i])
            ignis__string_add(&text, "%s%d", text.length ? ", " : "", i);
}

/*  Checks on rank 0 that the ranks can work together. Two ranks of a host on one GPU would wait for each
    other for ever. */
static bool ignis__rendezvous_check(const ignis__rendezvous *rendezvous, char *why, size_t size)
{
    static const char *const transports[] = {"the best transport", "peer", "staged", "nccl"};
    const ignis__job_rank *ranks = rendezvous->job->ranks;
    int i, k;
    for (i = 0; i < rendezvous->job->size; i++) {
        if (ranks[i].transport != ranks[0].transport) {
            snprintf(why, size, "rank 0 requests %s and rank %d %s", transports[ranks[0].transport & 3], i,
                     transports[ranks[i].transport & 3]);
            return false;
        }
        if (ranks[i].heartbeat_ms != ranks[0].heartbeat_ms) {
            snprintf(why, size, "rank 0 has a heartbeat of %g s and rank %d of %g s; expected one on all ranks",
                     ranks[0].heartbeat_ms / 1e3, i, ranks[i].heartbeat_ms / 1e3);
            return false;
        }
        if (ranks[i].origin && rendezvous->job->origin && ranks[i].origin != rendezvous->job->origin) {
            snprintf(why, size, "rank %d comes from another job than lower ranks; expected ranks of one job", i);
            return false;
        }
        rendezvous->job->origin = ranks[i].origin ? ranks[i].origin : rendezvous->job->origin;
        for (k = 0; k < i; k++)
            if (ranks[i].host == ranks[k].host && memcmp(ranks[i].uuid, ranks[k].uuid, sizeof ranks[i].uuid) == 0 &&
                ranks[0].transport != IGNIS_COMM_STAGED) {
                snprintf(why, size,
                         "ranks %d and %d both use GPU %.15s; set local ranks or desc.device so that each has its own, "
                         "or request IGNIS_COMM_STAGED on all",
                         k, i, ranks[i].pci);
                return false;
            }
    }
    return true;
}

/*  Returns the secret of the rendezvous; NULL: it is in the private folder. */
static const unsigned char *ignis__place_secret(const ignis__place *place)
{
    return place->has_secret ? place->secret : NULL;
}

/*  Waits on rank 0 for all ranks, and sends them the table, or the reason why they cannot start. */
static bool ignis__rendezvous_lead(ignis__rendezvous *rendezvous)
{
    ignis__job *job = rendezvous->job;
    const char *name_path = *rendezvous->place->address ? NULL : rendezvous->address.name_path;
    int64_t deadline = rendezvous->deadline + 1000 * IGNIS__MILLISECOND;
    ignis__answer answer;
    ignis__peer_error error;
    int i, k;
    if (rendezvous->place->by_id && !ignis__id_take(rendezvous->place->secret, &rendezvous->listener->file))
        return ignis__fail_false(
            IGNIS_DIAG_BAD_NUMBER, rendezvous->call,
            "desc.id was created by another process than this one, rank 0, or was already used: rank 0 "
            "creates one for each rendezvous");
    if (!ignis__listener_open(rendezvous->call, &error, rendezvous->listener, name_path,
                              ignis__place_secret(rendezvous->place)))
        return ignis__fail_false(IGNIS_DIAG_COMM_RENDEZVOUS, rendezvous->call, "rank 0 cannot listen at %s: %s",
                                 rendezvous->address.path, error.why);
    while (rendezvous->came < job->size - 1 && ignis__monotonic_ns() < rendezvous->deadline) {
        ignis__deadline until = ignis__deadline_in(50 * IGNIS__MILLISECOND);
        ignis__connection *connection = ignis__listener_next(rendezvous->call, &error, rendezvous->listener, &until);
        if (!connection && error.diagnostic != IGNIS_DIAG_CHANNEL_TIMEOUT)
            ignis__sleep_us(10000); /* a shortage of memory or descriptors may pass */
        /* a rank that has died may be the one that comes */
        ignis__rendezvous_drop_lost(rendezvous);
        if (connection && !ignis__rendezvous_admit(rendezvous, &error, connection))
            ignis__listener_refuse(rendezvous->call, rendezvous->listener, connection, true, error.why);
    }
    ignis__listener_close(rendezvous->listener);
    memset(&answer, 0, sizeof answer);
    answer.key = job->key;
    memcpy(answer.secret, job->secret, sizeof answer.secret);
    if (rendezvous->failed >= 0) {
        snprintf(answer.why, sizeof answer.why, "rank %d: %s", rendezvous->failed,
                 job->ranks[rendezvous->failed].failed);
        answer.refused = IGNIS_DIAG_COMM_RENDEZVOUS;
    } else if (rendezvous->came < job->size - 1) {
        char missing[64];
        ignis__rendezvous_missing(rendezvous, missing, sizeof missing);
        snprintf(answer.why, sizeof answer.why, "%d of %d ranks did not connect to %.64s within %g s: %s%s",
                 job->size - 1 - rendezvous->came, job->size, rendezvous->address.path, (double)job->timeout_ns / 1e9,
                 missing, *rendezvous->place->address ? "" : " (" IGNIS__OTHER_HOSTS ")");
        answer.refused = IGNIS_DIAG_COMM_TIMEOUT;
    } else if (!ignis__rendezvous_check(rendezvous, answer.why, sizeof answer.why)) {
        answer.refused = IGNIS_DIAG_COMM_RENDEZVOUS;
    }
    job->origin = answer.origin = job->origin ? job->origin : job->key;
    for (i = 1; i < job->size; i++) {
        bool sent =
            rendezvous->connections[i] && ignis__rendezvous_send(&error, rendezvous->connections[i], IGNIS__JOB_ANSWER,
                                                                 &answer, sizeof answer, deadline);
        for (k = 0; sent && !answer.refused && k < job->size; k++)
            sent = ignis__rendezvous_send(&error, rendezvous->connections[i], IGNIS__JOB_TABLE, &job->ranks[k],
                                          sizeof job->ranks[k], deadline);
    }
    if (answer.refused && !*job->ranks[0].failed)
        return ignis__fail_false((ignis_diagnostic)answer.refused, rendezvous->call, "%s", answer.why);
    return !answer.refused;
}

/*  Connects to rank 0 and receives the table. */
static bool ignis__rendezvous_join(ignis__rendezvous *rendezvous)
{
    ignis__job *job = rendezvous->job;
    const ignis__place *place = rendezvous->place;
    const ignis__deadline until = ignis__deadline_at(rendezvous->deadline);
    ignis__peer_error error;
    ignis__answer answer;
    ignis__client client;
    int k;
    client.kind = rendezvous->address.kind;
    client.path = rendezvous->address.path;
    client.name_path = rendezvous->address.name_path;
    client.secret = ignis__place_secret(place);
    client.claim = &job->ranks[job->rank];
    client.claim_size = sizeof job->ranks[0];
    client.capacity = IGNIS__HANDSHAKE_BYTES;
    rendezvous->connections[0] = ignis__connection_open(&error, &client, &until);
    if (!rendezvous->connections[0]) {
        if (error.diagnostic == IGNIS_DIAG_CHANNEL_TIMEOUT)
            ignis__fail(IGNIS_DIAG_COMM_TIMEOUT, rendezvous->call, "rank %d did not reach rank 0 within %g s: %s%s",
                        job->rank, (double)job->timeout_ns / 1e9, error.why,
                        *place->address ? "" : " (" IGNIS__OTHER_HOSTS ")");
        else
            ignis__fail(IGNIS_DIAG_COMM_RENDEZVOUS, rendezvous->call, "rank %d cannot take part: %s", job->rank,
                        error.why);
        return false;
    }
    if (!ignis__rendezvous_receive(&error, rendezvous->connections[0], IGNIS__JOB_ANSWER, &answer, sizeof answer,
                                   rendezvous->deadline + 500 * IGNIS__MILLISECOND)) {
        bool late = error.diagnostic == IGNIS_DIAG_CHANNEL_TIMEOUT;
        return ignis__fail_false(late ? IGNIS_DIAG_COMM_TIMEOUT : IGNIS_DIAG_COMM_RENDEZVOUS, rendezvous->call,
                                 late ? "rank 0 at %s sent no table to rank %d within %g s: other ranks may be missing"
                                      : "rank 0 at %s died before rank %d had the table (after at most %g s)",
                                 rendezvous->address.path, job->rank, (double)job->timeout_ns / 1e9);
    }
    answer.why[sizeof answer.why - 1] = 0;
    if (answer.refused) {
        if (answer.refused == IGNIS_DIAG_COMM_TIMEOUT)
            ignis__fail(IGNIS_DIAG_COMM_TIMEOUT, rendezvous->call, "%s", answer.why);
        else if (!*job->ranks[job->rank].failed) /* else it knows why */
            ignis__fail(IGNIS_DIAG_COMM_RENDEZVOUS, rendezvous->call, "rank 0 at %s refused rank %d: %s",
                        rendezvous->address.path, job->rank, answer.why);
        return false;
    }
    job->key = answer.key;
    job->origin = answer.origin;
    memcpy(job->secret, answer.secret, sizeof job->secret);
    for (k = 0; k < job->size; k++) {
        if (!ignis__rendezvous_receive(&error, rendezvous->connections[0], IGNIS__JOB_TABLE, &job->ranks[k],
                                       sizeof job->ranks[k], rendezvous->deadline + 1000 * IGNIS__MILLISECOND))
            return ignis__fail_false(IGNIS_DIAG_COMM_RENDEZVOUS, rendezvous->call, "rank 0 at %s disconnected: %s",
                                     rendezvous->address.path, error.why);
        ignis__job_rank_clean(&job->ranks[k]);
    }
    return true;
}

/*  Finds a rank that was lost while the ranks of a host connect: one that has connected, or on rank 0 has not yet done
    so after the table was sent. A rank that gives up ends its connections, so all others give up, too. -1 if there is
    none. */
static int ignis__mesh_lost(const ignis__rendezvous *rendezvous)
{
    int i;
    for (i = 0; i < rendezvous->job->size; i++) {
        ignis__connection *connection = rendezvous->job->links[i].connection;
        connection = connection ? connection : rendezvous->connections[i];
        if (connection && !connection->kind->alive(connection))
            return i;
    }
    return -1;
}

/*  Connects to a rank of this host with a lower number. */
static bool ignis__mesh_connect(ignis__rendezvous *rendezvous, ignis__client *client, int to)
{
    ignis__job *job = rendezvous->job;
    ignis__connection *connection;
    ignis__peer_error error;
    ignis__mesh_claim claim;
    char path[IGNIS__PATH_MAX];
    int64_t slice;
    claim.from = job->rank;
    claim.to = to;
    client->claim = &claim;
    client->path = path;
    ignis__local_path(job->ranks[to].path, path);
    do {
        ignis__deadline until;
        slice = ignis__monotonic_ns() + 500 * IGNIS__MILLISECOND;
        until = ignis__deadline_at(slice < rendezvous->deadline ? slice : rendezvous->deadline);
        connection = ignis__connection_open(&error, client, &until);
    } while (!connection && error.diagnostic == IGNIS_DIAG_CHANNEL_TIMEOUT && slice < rendezvous->deadline &&
             ignis__mesh_lost(rendezvous) < 0);
    job->links[to].connection = connection;
    return connection || ignis__fail_false(IGNIS_DIAG_COMM_RENDEZVOUS, rendezvous->call,
                                           "rank %d cannot reach rank %d of its host: %s", job->rank, to, error.why);
}

/*  Connects the ranks of a host: this rank connects to the lower ones and accepts the higher ones. */
static bool ignis__rendezvous_mesh(ignis__rendezvous *rendezvous)
{
    ignis__job *job = rendezvous->job;
    const ignis__job_rank *ranks = job->ranks;
    ignis__mesh_claim claim;
    ignis__client client;
    ignis__peer_error error;
    ignis__connection *connection;
    int i, lost = -1, expected = 0;
    memcpy(rendezvous->local->secret, job->secret, sizeof job->secret);
    client.kind = ignis__connection_kinds[IGNIS_CHANNEL_DEFAULT];
    client.name_path = NULL;
    client.secret = job->secret;
    client.claim_size = sizeof claim;
    client.capacity = IGNIS__HANDSHAKE_BYTES;
    for (i = 0; i < job->size; i++) {
        if (i == job->rank || ranks[i].host != ranks[job->rank].host)
            continue;
        if (i > job->rank)
            expected++;
        else if (!ignis__mesh_connect(rendezvous, &client, i))
            return false;
    }
    memset(&error, 0, sizeof error);
    while (expected > 0 && lost < 0 && ignis__monotonic_ns() < rendezvous->deadline) {
        const ignis__deadline until = ignis__deadline_in(50 * IGNIS__MILLISECOND);
        connection = ignis__listener_next(rendezvous->call, &error, rendezvous->local, &until);
        if (!connection) {
            lost = ignis__mesh_lost(rendezvous);
            if (error.diagnostic != IGNIS_DIAG_CHANNEL_TIMEOUT)
                ignis__sleep_us(10000); /* a shortage of memory or descriptors may pass */
        } else if (ignis__claim_read(&error, connection, &claim, sizeof claim) && claim.to == job->rank &&
                   claim.from > job->rank && claim.from < job->size &&
                   ranks[claim.from].host == ranks[job->rank].host && !job->links[claim.from].connection &&
                   ignis__connection_welcome(&error, connection, IGNIS__HANDSHAKE_BYTES)) {
            job->links[claim.from].connection = connection;
            expected--;
        } else {
            ignis__listener_refuse(rendezvous->call, rendezvous->local, connection, true, "the rank is not expected");
        }
    }
    if (lost >= 0)
        return ignis__fail_false(IGNIS_DIAG_COMM_RENDEZVOUS, rendezvous->call,
                                 "rank %d was lost before all ranks of its host were connected", lost);
    return expected == 0 ||
           ignis__fail_false(IGNIS_DIAG_COMM_RENDEZVOUS, rendezvous->call,
                             "%d ranks did not connect to rank %d of their host: %s", expected, job->rank, error.why);
}

/*  Allocates the lists of a job of several ranks, and the watcher's poller. */
static bool ignis__job_prepare(const char *call, ignis__job *job)
{
    ignis__mutex_init(&job->lock);
    job->poller.count = job->size;
    job->poller.connection =
        (ignis__connection **)ignis__alloc_for(call, sizeof *job->poller.connection * (size_t)job->size);
    job->poller.is_ready = job->poller.connection
                               ? (bool *)ignis__alloc_for(call, sizeof *job->poller.is_ready * (size_t)job->size)
                               : NULL;
    job->links =
        job->poller.is_ready ? (ignis__job_link *)ignis__alloc_for(call, sizeof *job->links * (size_t)job->size) : NULL;
    if (!job->links)
        return false;
    job->ready = ignis__condition_make(&job->changed);
    job->has_poller = job->ready;
    return job->ready ? ignis__poller_open(call, &job->poller)
                      : ignis__fail_false(IGNIS_DIAG_CHANNEL_IO, call, "the system returned no condition variable");
}

/*  Determines where the ranks meet, and opens the listener for ranks of this host. */
static bool ignis__rendezvous_listen(ignis__rendezvous *rendezvous)
{
    const ignis__place *place = rendezvous->place;
    ignis__job_rank *self = &rendezvous->job->ranks[rendezvous->job->rank];
    const ignis__connection_kind *local = ignis__connection_kinds[IGNIS_CHANNEL_DEFAULT];
    char folder[IGNIS__PATH_MAX], path[IGNIS__PATH_MAX];
    ignis__peer_error error;
    uint64_t random = 0;
    snprintf(folder, sizeof folder, "%s", place->folder);
    rendezvous->address.kind = *place->address ? IGNIS__CONNECTION_FAR : local;
    if (!ignis__endpoint_set_paths(rendezvous->call, folder, place->name, &rendezvous->address))
        return false;
    if (*place->address)
        ignis__local_path(place->address, rendezvous->address.path);
    if (!ignis__random_bytes(&random, sizeof random))
        return ignis__fail_false(IGNIS_DIAG_CHANNEL_IO, rendezvous->call, "the system returned no random bytes");
    if (!ignis__local_name(folder, self->rank, random, self->path, sizeof self->path))
        return ignis__fail_false(IGNIS_DIAG_CHANNEL_IO, rendezvous->call,
                                 "the path of the folder %.300s is too long for sockets; expected at most %d bytes",
                                 folder, (int)sizeof self->path - 24);
    ignis__local_path(self->path, path);
    if ((rendezvous->listener =
             ignis__listener_new(rendezvous->call, rendezvous->address.kind, rendezvous->address.path)) == NULL ||
        (rendezvous->local = ignis__listener_new(rendezvous->call, local, path)) == NULL)
        return false;
    return ignis__listener_open(rendezvous->call, &error, rendezvous->local, NULL,
                                rendezvous->job->secret) || /* replaced by the secret of rank 0 */
           ignis__peer_error_report(rendezvous->call, &error) == IGNIS_OK;
}

static bool ignis__rendezvous_run(ignis__rendezvous *rendezvous)
{
    ignis__job *job = rendezvous->job;
    int i;
    if (!ignis__rendezvous_listen(rendezvous) ||
        !(job->rank == 0 ? ignis__rendezvous_lead(rendezvous) : ignis__rendezvous_join(rendezvous)) ||
        !ignis__rendezvous_mesh(rendezvous))
        return false;
    for (i = 0; i < job->size; i++) /* with other hosts, connections to rank 0 stay */
        if (!job->links[i].connection && rendezvous->connections[i] &&
            job->ranks[i].host != job->ranks[job->rank].host) {
            job->links[i].connection = rendezvous->connections[i];
            rendezvous->connections[i] = NULL;
        }
    /* messages that came since wait for the watcher */
    job->watched = ignis__watcher_start(&job->watcher, ignis__job_watcher, job);
    return job->watched || ignis__fail_false(IGNIS_DIAG_COMM_RENDEZVOUS, rendezvous->call,
                                             "rank %d could not start a thread", job->rank);
}

/*  Meets the other ranks of a job. */
static bool ignis__job_connect(const char *call, ignis__job *job, const ignis__place *place)
{
    ignis__rendezvous rendezvous;
    bool ok;
    int i;
    memset(&rendezvous, 0, sizeof rendezvous);
    rendezvous.call = call;
    rendezvous.job = job;
    rendezvous.place = place;
    rendezvous.deadline = ignis__monotonic_ns() + job->timeout_ns;
    rendezvous.failed = -1;
    if (*job->ranks[job->rank].failed) { /* it only tells this to the ranks that came */
        int64_t soon = ignis__monotonic_ns() + 2000 * IGNIS__MILLISECOND;
        rendezvous.deadline = soon < rendezvous.deadline ? soon : rendezvous.deadline;
        rendezvous.failed = job->rank == 0 ? 0 : -1;
    }
    rendezvous.connections =
        (ignis__connection **)ignis__alloc_for(call, sizeof *rendezvous.connections * (size_t)job->size);
    ok = rendezvous.connections && ignis__job_prepare(call, job) && ignis__rendezvous_run(&rendezvous);
    for (i = 0; rendezvous.connections && i < job->size; i++)
        ignis__connection_destroy(rendezvous.connections[i]);
    ignis__listener_free(rendezvous.listener);
    ignis__listener_free(rendezvous.local);
    ignis__free(rendezvous.connections);
    return ok;
}

/*  Creates a job, which the caller holds, and meets its other ranks. self describes this rank. */
IGNIS__COLD IGNIS__PRIVATE ignis__job *ignis__job_meet(const char *call, const ignis__place *place,
                                                       const ignis__job_rank *self, int64_t timeout_ns)
{
    ignis__job *job = (ignis__job *)ignis__alloc_for(call, sizeof *job);
    bool ok;
    if (!job)
        return NULL;
    job->rank = place->rank;
    job->size = place->size;
    job->users = 1;
    job->timeout_ns = timeout_ns;
    job->ranks = (ignis__job_rank *)ignis__alloc_for(call, sizeof *job->ranks * (size_t)job->size);
    ok = job->ranks &&
         ((ignis__random_bytes(job->secret, sizeof job->secret) && ignis__random_bytes(&job->key, sizeof job->key)) ||
          ignis__fail_false(IGNIS_DIAG_CHANNEL_IO, call, "the system returned no random bytes"));
    if (ok) {
        job->ranks[job->rank] = *self;
        job->place = *place;
        job->origin = job->size > 1 ? 0 : self->origin ? self->origin : job->key;
        ok = job->size == 1 || ignis__job_connect(call, job, place);
    }
    if (ok)
        return job;
    ignis__job_end(job);
    return NULL;
}

IGNIS__PRIVATE void ignis__job_hold(ignis__job *job) { ignis__atomic_add(&job->users, 1); }

IGNIS__PRIVATE void ignis__job_drop(ignis__job *job)
{
    if (job && ignis__atomic_add(&job->users, (uint64_t)-1) == 0)
        ignis__job_end(job);
}

/*  Reports the failure of an agreement. Always returns false. */
IGNIS__COLD IGNIS__PRIVATE bool ignis__agreement_failed(const char *call, const ignis__agreement *agreement)
{
    static const char *const kinds[IGNIS__AGREEMENT_KIND_COUNT + 1] = {
        "ignis_comm_init",   "an operation that joins NCCL", "ignis_parallel_create", "ignis_comm_split",
        "ignis_comm_shrink", "an unknown function"};
    const ignis__agreement_failure *failure = &agreement->failure;
    const uint32_t kind = failure->theirs >> 28;
    if (failure->reason == IGNIS__AGREEMENT_LOST)
        return ignis__fail_false(IGNIS_DIAG_COMM_PEER, call, "rank %d has died or left", failure->rank);
    if (failure->reason == IGNIS__AGREEMENT_LATE)
        return ignis__fail_false(IGNIS_DIAG_COMM_TIMEOUT, call, "rank %d did not answer before the deadline",
                                 failure->rank);
    if (kind == agreement->print >> 28)
        return ignis__fail_false(IGNIS_DIAG_COMM_MISMATCH, call, "rank %d excludes other ranks", failure->rank);
    return ignis__fail_false(IGNIS_DIAG_COMM_MISMATCH, call, "rank %d calls %s", failure->rank,
                             kinds[kind < (uint32_t)IGNIS__COUNT(kinds) ? kind : (uint32_t)IGNIS__COUNT(kinds) - 1]);
}

/*  >>comm - communicators and collective operations

    Types of this room: the region of a rank, what kernels read and write, the communicator itself.
    Uses: vmm, peer, job, nccl; arrays, modules and streams of ignis.h.
    Invariants: src/shared/collective.h has the layout of a region and the structs that kernels read.
    Locks: a communicator's slot, one operation at a time; then regions->lock; then the job's lock. */

/*  Buffer of one set and phase, compiled into kernels. It fits chunks of 64 KB in two phases with 128
    blocks. */

/*  The handle of the communicator that was used last, by device. */
IGNIS__PRIVATE uint64_t ignis__comm_last_used[IGNIS_MAX_DEVICES];

IGNIS__PRIVATE ignis__pool ignis__comms =
    IGNIS__POOL(ignis__comm, IGNIS__KIND_COMM, "communicator", IGNIS_DIAG_COMM_FREED);

/*  Tells if it has Ignis' kernels, not only NCCL. */
IGNIS__PRIVATE bool ignis__comm_has_region(const ignis__comm *comm) { return comm->memory->regions->address[0] != 0; }

/*  Returns the bytes of a rank's region. */
IGNIS__PRIVATE int64_t ignis__comm_region_bytes(int size)
{
    return IGNIS__COMM_PAIR_DATA + (int64_t)size * IGNIS__COMM_LANES * IGNIS__COMM_PAIR_SLOTS * IGNIS__COMM_PAIR_SLOT;
}

/*  >>comm.kernel - programs of collective.cu, compiled and loaded

    One program a device, number of ranks, dtype and op.
    Uses: modules of ignis.h, kernels/collective.cu.
    Invariants: a program is loaded by one thread; the others wait for it.
    Locks: ignis__comm_programs.lock around the lists; no lock is held while a program is loaded. */

IGNIS__PRIVATE struct ignis__comm_programs_type ignis__comm_programs = {IGNIS__MUTEX_INIT, {NULL}};

IGNIS__PRIVATE bool ignis__comm_program_load(const char *call, ignis__device *device, ignis__comm_program *program)
{
    static const char *const names[IGNIS__COMM_KERNELS] = {"ignis_comm_packets", "ignis_comm_packets_two",
                                                           "ignis_comm_parts",   "ignis_comm_slices",
                                                           "ignis_comm_pair",    "ignis_comm_mark"};
    char defines[128];
    bool ok = true;
    int kernel, length = snprintf(defines, sizeof defines, "-DIGNIS_RANKS=%d -DIGNIS__COMM_DATA_MIB=%d", program->ranks,
                                  IGNIS__COMM_DATA_MIB);
    if (program->op >= 0)
        length += snprintf(defines + length, sizeof defines - (size_t)length, " -DIGNIS_OP=%d", program->op);
    if (program->delay)
        snprintf(defines + length, sizeof defines - (size_t)length, " -DIGNIS_COMM_DELAY");
    if (!ignis__builtin_make(call, device, &ignis__source_collective_cu, NULL,
                             program->op >= 0 ? (ignis_dtype)program->dtype : IGNIS_U8, defines, &program->module))
        return false;
    for (kernel = 0; ok && kernel < IGNIS__COMM_KERNELS; kernel++)
        if (program->op >= 0 ? kernel < IGNIS__COMM_KERNEL_PAIR : kernel != IGNIS__COMM_KERNEL_PACKETS_TWO)
            ok = ignis__function_get(call, device, &program->module, names[kernel], &program->function[kernel]);
    ok = ok && ignis__function_waits(call, device, program->function[IGNIS__COMM_KERNEL_PACKETS], &program->waits);
    if (!ok)
        ignis__module_unload(&program->module);
    return ok;
}

/*  Finds a loaded program, or one that the caller must load (*ours). Waits for another thread that loads it.
    NULL if host memory is short. */
static ignis__comm_program *ignis__comm_program_claim(const ignis__device *device, int ranks, int dtype, int op,
                                                      bool delay, bool *ours)
{
    ignis__comm_program **first = &ignis__comm_programs.first[device - ignis__devices], *program;
    bool loading = false;
    *ours = false;
    do {
        if (loading)
            ignis__sleep_us(50);
        ignis__mutex_lock(&ignis__comm_programs.lock);
        for (program = *first; program; program = program->next)
            if (program->ranks == ranks && program->dtype == dtype && program->op == op && program->delay == delay)
                break;
        loading = program && !program->loaded;
        if (!program && (program = (ignis__comm_program *)ignis__alloc(sizeof *program)) != NULL) {
            *ours = true;
            program->ranks = ranks;
            program->dtype = dtype;
            program->op = op;
            program->delay = delay;
            program->next = *first;
            *first = program;
        }
        ignis__mutex_unlock(&ignis__comm_programs.lock);
    } while (loading);
    return program;
}

/*  Returns a program on an entered device, compiled and loaded if needed. NULL on failure. */
IGNIS__COLD IGNIS__PRIVATE ignis__comm_program *ignis__comm_program_get(const char *call, ignis__device *device,
                                                                        int ranks, int dtype, int op, bool delay)
{
    ignis__comm_program **link = &ignis__comm_programs.first[device - ignis__devices];
    bool ours, loaded;
    ignis__comm_program *program = ignis__comm_program_claim(device, ranks, dtype, op, delay, &ours);
    if (!program)
        ignis__fail_host_memory(call, sizeof *program);
    if (!ours)
        return program;
    loaded = ignis__comm_program_load(call, device, program);
    ignis__mutex_lock(&ignis__comm_programs.lock);
    program->loaded = loaded;
    while (!loaded && *link != program)
        link = &(*link)->next;
    if (!loaded)
        *link = program->next;
    ignis__mutex_unlock(&ignis__comm_programs.lock);
    if (loaded)
        return program;
    ignis__free(program);
    return NULL;
}

/*  Returns the program for the communicator's device, which is entered; the caller has the communicator's
    lock. Programs of the other devices of its group are loaded first: loading may wait for a device, whose
    kernel may wait for this one. */
IGNIS__PRIVATE ignis__comm_program *ignis__comm_program_for(const char *call, ignis__comm *comm, int dtype, int op)
{
    ignis__comm_program **known = &comm->programs[op < 0 ? 0 : dtype][op < 0 ? 0 : op];
    const ignis__comm_regions *regions = comm->memory->regions;
    int i;
    for (i = 0; !*known && !comm->job && i < regions->count; i++) {
        ignis__device *device = regions->block[i].device;
        ignis__binding binding;
        bool ok;
        if (device == comm->device)
            continue;
        if (!ignis__device_enter(call, device, &binding))
            return NULL;
        ok = ignis__comm_program_get(call, device, comm->size, dtype, op, comm->tune.delay != 0) != NULL;
        ignis__device_leave(&binding);
        if (!ok)
            return NULL;
    }
    if (!*known)
        *known = ignis__comm_program_get(call, comm->device, comm->size, dtype, op, comm->tune.delay != 0);
    return *known;
}

/*  >>comm.tuning - IGNIS_COMM_TUNE

    Reads parameters for measurements from the environment.
    Uses: ignis__comm_tune.
    Invariants: unknown names and bad numbers are errors.
    Locks: none. */

IGNIS__PRIVATE bool ignis__comm_tune_read(const char *call, ignis__comm_tune *tune)
{
    static const struct {
        const char *name;
        size_t offset;
        int64_t value;
    } known[] = {
#define IGNIS__COMM_TUNE_ROW(name, value) {#name, offsetof(ignis__comm_tune, name), value},
        IGNIS__COMM_TUNES(IGNIS__COMM_TUNE_ROW)
#undef IGNIS__COMM_TUNE_ROW
    };
    const char *text = ignis__env("IGNIS_COMM_TUNE");
    int i;
    for (i = 0; i < IGNIS__COUNT(known); i++)
        *(int64_t *)(void *)((char *)tune + known[i].offset) = known[i].value;
    while (text && *text) {
        size_t length = strcspn(text, "=");
        char *end = NULL;
        long long value = text[length] ? strtoll(text + length + 1, &end, 0) : -1;
        for (i = 0; i < IGNIS__COUNT(known); i++)
            if (strlen(known[i].name) == length && strncmp(known[i].name, text, length) == 0)
                break;
        if (end && (*end == 'K' || *end == 'M')) {
            value = *end == 'K' ? value << 10 : value << 20;
            end++;
        }
        if (i == IGNIS__COUNT(known) || !end || end == text + length + 1 || (*end && *end != ',') || value < 0)
            return ignis__fail_false(IGNIS_DIAG_BAD_NUMBER, call,
                                     "IGNIS_COMM_TUNE has \"%s\"; expected name=number with a known name", text);
        *(int64_t *)(void *)((char *)tune + known[i].offset) = value;
        text = *end ? end + 1 : end;
    }
    tune->lanes = ignis__clamp(tune->lanes, 1, IGNIS__COMM_LANES);
    return true;
}

/*  >>comm - communicators: options, memory, ending, failing

    Creates and ends the objects behind ignis_comm, and breaks a communicator from the host.
    Uses: regions, kernels, jobs, NCCL.
    Invariants: memory that kernels of a captured graph use stays until the graph is gone; a broken
    communicator never works again.
    Locks: the slot's lock, one operation at a time; the regions' lock. */

/* Of this part and the next one. */
IGNIS__PRIVATE void ignis__comm_drop(const char *call, ignis__comm *comm);
IGNIS__PRIVATE void ignis__comm_groups_break(ignis__comm *outer);
IGNIS__PRIVATE void ignis__comm_groups_settle(ignis__comm *comm);
IGNIS__PRIVATE void ignis__comm_group_unlist(ignis__comm *group);

/*  Frees the regions, so that others can be made. */
IGNIS__PRIVATE void ignis__comm_regions_clear(const char *call, ignis__comm_regions *regions)
{
    ignis__binding binding;
    int i;
    for (i = 0; i < IGNIS_COMM_MAX_RANKS && !regions->late; i++) { /* rather leak them than fault */
        if (regions->block[i].memory)
            ignis__vmm_block_destroy(call, &regions->block[i]);
        if (regions->pinned[i] && ignis__device_enter_to_give(call, regions->device, &binding)) {
            (void)IGNIS__CUDA_FAILED(call, regions->device, cuMemHostUnregister, (regions->host[i]));
            ignis__device_leave(&binding);
        }
        if (regions->host[i])
            ignis__shared_unmap(regions->host[i], (size_t)regions->bytes);
    }
    memset(regions->block, 0, sizeof regions->block);
    memset(regions->host, 0, sizeof regions->host);
    memset(regions->pinned, 0, sizeof regions->pinned);
    memset(regions->address, 0, sizeof regions->address);
    regions->late = false;
}

IGNIS__PRIVATE ignis__comm_regions *ignis__comm_regions_new(const char *call, ignis__device *device, int count)
{
    ignis__comm_regions *regions = (ignis__comm_regions *)ignis__alloc_for(call, sizeof *regions);
    if (!regions)
        return NULL;
    ignis__mutex_init(&regions->lock);
    regions->users = 1;
    regions->count = count;
    regions->device = device;
    return regions;
}

IGNIS__PRIVATE void ignis__comm_regions_drop(const char *call, ignis__comm_regions *regions)
{
    if (!regions || ignis__atomic_add(&regions->users, (uint64_t)-1) != 0)
        return;
    ignis__comm_regions_clear(call, regions);
    ignis__free(regions);
}

/*  Releases the memory when no kernel can run on it any more. */
static void ignis__comm_memory_release(void *ptr, void *data)
{
    static const char call[] = "ignis_comm_destroy";
    ignis__comm_memory *memory = (ignis__comm_memory *)data;
    ignis__binding binding;
    (void)ptr;
    ignis__nccl_leave(call, memory->nccl);
    if (memory->state && ignis__device_enter_to_give(call, memory->device, &binding)) {
        ignis__memory_recycle(call, memory->device, memory->state);
        ignis__device_leave(&binding);
    }
    if (memory->record_piece)
        (void)ignis__pinned_chunk_recycle(call, memory->device, memory->record_piece);
    ignis__comm_regions_drop(call, memory->regions);
    ignis__free(memory);
}

/*  Destroys a communicator without holds or without a handle, after its work is done. Memory that graphs
    still use stays, and makes their kernels return at once. */
IGNIS__COLD IGNIS__PRIVATE void ignis__comm_end(const char *call, ignis__comm *comm)
{
    ignis__binding binding;
    ignis__comm_memory *memory = comm->memory;
    ignis__comm *outer = comm->outer;
    int i;
    if (memory->state && ignis__device_enter_to_give(call, comm->device, &binding)) {
        (void)ignis__device_wait(call, comm->device); /* ends, since all waits have deadlines */
        if (ignis__atomic_load(&comm->storage->users) > 1) {
            (void)IGNIS__CUDA_FAILED(call, comm->device, cuMemsetD8Async,
                                     (memory->state->address + offsetof(ignis__comm_state, broken), IGNIS__COMM_PEER, 1,
                                      comm->device->stream));
            if (memory->nccl)
                ignis__nccl_abort(memory->nccl);
        }
        ignis__device_leave(&binding);
    }
    if (comm->job) /* from here on the job tells it nothing */
        ignis__job_watch_end(comm->job, &comm->watch);
    if (outer)
        ignis__comm_group_unlist(comm);
    ignis__mutex_lock(&memory->regions->lock);
    for (i = 0; i < memory->regions->count; i++)
        if (memory->regions->comms[i] == comm)
            memory->regions->comms[i] = NULL;
    ignis__mutex_unlock(&memory->regions->lock);
    ignis__storage_drop(call, comm->storage);
    ignis__job_drop(comm->job);
    ignis__pool_recycle(&ignis__comms, comm);
    if (outer)
        ignis__comm_drop(call, outer);
}

/*  Holds the communicator of a handle. NULL, and reported, if the handle is stale. */
IGNIS__PRIVATE ignis__comm *ignis__comm_hold(const char *call, ignis_comm handle)
{
    return (ignis__comm *)ignis__handle_hold(call, &ignis__comms, handle.id);
}

IGNIS__PRIVATE void ignis__comm_drop(const char *call, ignis__comm *comm)
{
    if (ignis__pool_drop(comm))
        ignis__comm_end(call, comm);
}

IGNIS__COLD static void ignis__comms_close(const char *call)
{
    ignis__comm *comm;
    uint64_t index = 0;
    int i;
    while ((comm = (ignis__comm *)ignis__pool_next(&ignis__comms, &index)) != NULL) {
        ignis__leak_report(call, IGNIS_DIAG_HANDLE_LEAKED, "communicator: rank %d of %d on device %d", comm->rank,
                           comm->size, ignis__device_ordinal(comm->device));
        ignis__handle_kill(comm);
        ignis__comm_drop(call, comm);
    }
    for (i = 0; i < ignis__device_total; i++) {
        ignis__device *device = &ignis__devices[i];
        ignis__binding binding;
        bool entered = ignis__comm_programs.first[i] && ignis__device_enter_to_give(call, device, &binding);
        while (ignis__comm_programs.first[i]) {
            ignis__comm_program *program = ignis__comm_programs.first[i];
            ignis__comm_programs.first[i] = program->next;
            if (entered)
                ignis__module_unload(&program->module);
            ignis__free(program);
        }
        if (entered)
            ignis__device_leave(&binding);
    }
}

/*  Reads the limit of silence. False, and reported, if it is invalid. */
static bool ignis__comm_heartbeat_read(const char *call, const ignis_comm_desc *desc, ignis__comm_options *options)
{
    const char *text = ignis__env("IGNIS_COMM_HEARTBEAT");
    char *end = NULL;
    double seconds = desc->heartbeat_s;
    if (desc->heartbeat_s == 0 && text && *text) {
        seconds = strtod(text, &end);
        if (*end || !(seconds >= 0.1 && seconds <= 1e6) || end == text)
            return ignis__fail_false(IGNIS_DIAG_COMM_ENVIRONMENT, call,
                                     "IGNIS_COMM_HEARTBEAT is \"%.64s\"; expected seconds, from 0.1 to 1000000", text);
    }
    if (seconds != 0 && !(seconds >= 0.1 && seconds <= 1e6))
        return ignis__fail_false(IGNIS_DIAG_BAD_NUMBER, call,
                                 "desc.heartbeat_s is %g; expected 0, or seconds from 0.1 to 1000000", seconds);
    options->heartbeat_ms = (int)(seconds * 1000);
    return true;
}

/*  Reads the options of a description and the environment. False, and reported, if they are invalid. */
IGNIS__PRIVATE bool ignis__comm_options_read(const char *call, const ignis_comm_desc *desc,
                                             ignis__comm_options *options)
{
    static const char *const names[] = {"", "peer", "staged", "nccl"};
    double timeout = desc->timeout_s == 0 ? 30 : desc->timeout_s;
    const char *text = ignis__env("IGNIS_COMM_TRANSPORT");
    int i;
    if (!(timeout > 0 && timeout <= 1e6))
        return ignis__fail_false(IGNIS_DIAG_BAD_NUMBER, call,
                                 "desc.timeout_s is %g; expected above 0 and up to 1000000", timeout);
    if (desc->most_blocks < 0)
        return ignis__fail_false(IGNIS_DIAG_BAD_NUMBER, call, "desc.most_blocks is %d; expected 0 or more",
                                 desc->most_blocks);
    if ((unsigned)desc->transport >= IGNIS_COMM_TRANSPORT_COUNT)
        return ignis__fail_false(IGNIS_DIAG_BAD_ENUM, call,
                                 "desc.transport is %d; expected IGNIS_COMM_PEER, _STAGED or _NCCL",
                                 (int)desc->transport);
    if (!ignis__comm_heartbeat_read(call, desc, options))
        return false;
    options->timeout_ns = (int64_t)(timeout * 1e9);
    options->most_blocks = desc->most_blocks;
    options->transport = desc->transport;
    if (desc->transport || !text || !*text)
        return true;
    for (i = 1; i < IGNIS__COUNT(names); i++)
        if (strcmp(text, names[i]) == 0)
            options->transport = (ignis_comm_transport)i;
    if (options->transport)
        return true;
    return ignis__fail_false(IGNIS_DIAG_COMM_ENVIRONMENT, call,
                             "IGNIS_COMM_TRANSPORT is \"%.64s\"; expected peer, staged or nccl", text);
}

/*  Creates a communicator that other threads do not see before ignis__pool_publish. It shares the regions
    `shared`, or has its own if that is NULL. NULL on failure. */
IGNIS__PRIVATE ignis__comm *ignis__comm_new(const char *call, ignis__device *device, int rank, int size,
                                            const ignis__comm_options *options, ignis__comm_regions *shared)
{
    ignis__comm *comm = (ignis__comm *)ignis__pool_take(call, &ignis__comms);
    ignis__comm_regions *regions = !comm || shared ? shared : ignis__comm_regions_new(call, device, 0);
    ignis__comm_memory *memory = comm && regions ? (ignis__comm_memory *)ignis__alloc_for(call, sizeof *memory) : NULL;
    ignis__storage *storage = memory ? ignis__storage_make(call, device, 0) : NULL;
    if (!comm)
        return NULL;
    if (!storage) {
        if (!shared)
            ignis__comm_regions_drop(call, regions);
        ignis__free(memory);
        ignis__pool_recycle(&ignis__comms, comm);
        return NULL;
    }
    if (shared)
        ignis__atomic_add(&shared->users, 1);
    memset((char *)comm + sizeof comm->slot, 0, sizeof *comm - sizeof comm->slot);
    memory->device = device;
    memory->regions = regions;
    storage->users = 1;
    storage->wrapped = true;
    storage->release_fn = ignis__comm_memory_release;
    storage->release_data = memory;
    comm->rank = rank;
    comm->size = size;
    comm->device = device;
    comm->options = *options;
    comm->storage = storage;
    comm->memory = memory;
    ignis__mutex_init(&comm->agreement);
    ignis__mutex_init(&comm->groups_lock);
    ignis__section_use(IGNIS__SECTION_COMM, ignis__comms_close);
    return comm;
}

/*  Fills the communicator's own memory and clears its region. The device is entered. */
static bool ignis__comm_memory_begin(const char *call, ignis__comm *comm)
{
    ignis__comm_memory *memory = comm->memory;
    ignis__comm_state *state;
    int i;
    bool ok;
    memory->record_piece = ignis__pinned_chunk_take(call, comm->device, (int64_t)sizeof *memory->record);
    memory->record = memory->record_piece ? (ignis__comm_record *)memory->record_piece->memory : NULL;
    memory->state =
        memory->record ? ignis__memory_take(call, comm->device, comm->device->stream, (int64_t)sizeof *state) : NULL;
    state = memory->state ? (ignis__comm_state *)ignis__alloc_for(call, sizeof *state) : NULL;
    if (!state)
        return false;
    memset(memory->record, 0, sizeof *memory->record);
    for (i = 0; i < IGNIS__COMM_BLOCKS; i++)
        state->op[i] = (uint32_t)comm->tune.epoch;
    state->rank = (uint32_t)comm->rank;
    state->size = (uint32_t)comm->size;
    state->record = (ignis__address)(uintptr_t)memory->record;
    memcpy(state->region, memory->regions->address, sizeof state->region);
    ok = !IGNIS__CUDA_FAILED(call, comm->device, cuMemcpyHtoDAsync_v2,
                             (memory->state->address, state, sizeof *state, comm->device->stream)) &&
         (memory->regions->host[0] || !ignis__comm_has_region(comm) ||
          !IGNIS__CUDA_FAILED(
              call, comm->device, cuMemsetD8Async,
              (memory->regions->address[comm->rank], 0, (size_t)IGNIS__COMM_DATA, comm->device->stream))) &&
         !IGNIS__CUDA_FAILED(call, comm->device, cuStreamSynchronize, (comm->device->stream));
    ignis__free(state);
    return ok;
}

/*  Counts the blocks that run at the same time, for every kernel that moves bytes. */
static bool ignis__comm_count_blocks(const char *call, ignis__comm *comm)
{
    static const struct {
        int kernel, threads;
    } limits[] = {{IGNIS__COMM_KERNEL_PACKETS, IGNIS__COMM_PACKET_THREADS},
                  {IGNIS__COMM_KERNEL_PARTS, IGNIS__COMM_FLAG_THREADS},
                  {IGNIS__COMM_KERNEL_SLICES, IGNIS__COMM_FLAG_THREADS},
                  {IGNIS__COMM_KERNEL_PAIR, IGNIS__COMM_FLAG_THREADS}};
    ignis__comm_program *program =
        ignis__comm_program_get(call, comm->device, comm->size, -1, -1, comm->tune.delay != 0);
    int i, per_processor = 1;
    if (!program)
        return false;
    comm->most_blocks = IGNIS__COMM_BLOCKS;
    for (i = 0; i < IGNIS__COUNT(limits); i++) {
        if (IGNIS__CUDA_FAILED(call, comm->device, cuOccupancyMaxActiveBlocksPerMultiprocessor,
                               (&per_processor, program->function[limits[i].kernel], limits[i].threads, 0)))
            return false;
        if (comm->most_blocks > per_processor * comm->device->info.multiprocessors)
            comm->most_blocks = per_processor * comm->device->info.multiprocessors;
    }
    if (comm->options.most_blocks > 0 && comm->most_blocks > comm->options.most_blocks)
        comm->most_blocks = comm->options.most_blocks;
    if (comm->most_blocks < 1)
        comm->most_blocks = 1;
    return true;
}

/*  Completes a communicator whose regions exist. All ranks must meet afterwards, before one of them launches.
    Without regions (NCCL alone, one rank) less is needed. */
IGNIS__PRIVATE bool ignis__comm_start(const char *call, ignis__comm *comm)
{
    ignis__binding binding;
    bool ok;
    if (!ignis__comm_tune_read(call, &comm->tune) || !ignis__device_enter(call, comm->device, &binding))
        return false;
    ok = comm->size == 1 || ignis__comm_memory_begin(call, comm);
    if (ok && comm->size > 1 && ignis__comm_has_region(comm))
        ok = ignis__comm_count_blocks(call, comm);
    else if (ok && comm->size > 1) /* a program for any number of ranks marks the operations of NCCL */
        ok = (comm->programs[0][0] = ignis__comm_program_get(call, comm->device, 2, -1, -1, false)) != NULL;
    ignis__device_leave(&binding);
    return ok;
}

static void ignis__comm_break_one(ignis__comm *comm, uint64_t value)
{
    uint64_t none = 0;
    ignis__atomic_swap_if(&comm->broken, &none, value);
    if (comm->memory->record)
        ignis__atomic_store(&comm->memory->record->abort, value);
}

/*  Breaks a communicator, and those that share its regions, from the host. Waiting kernels return soon, and
    NCCL is aborted. code: IGNIS__COMM_PEER or another; peer: the rank at fault, -1 for none. Kernels see the
    low 8 bits, as they have fewer ranks. Any thread may call it. */
IGNIS__PRIVATE void ignis__comm_break(ignis__comm *comm, int code, int peer)
{
    ignis__comm_regions *regions = comm->memory->regions;
    uint64_t value = (uint64_t)code | (uint64_t)((uint32_t)peer & 0xFFFFFF) << 8;
    int i;
    ignis__comm_break_one(comm, value);
    ignis__mutex_lock(&regions->lock);
    for (i = 0; i < regions->count; i++)
        if (regions->comms[i])
            ignis__comm_break_one(regions->comms[i], value);
    ignis__mutex_unlock(&regions->lock);
    if (ignis__atomic_load(&comm->nccl_there))
        ignis__nccl_abort(comm->memory->nccl);
    ignis__comm_groups_break(comm);
}

/*  As ignis__comm_break, and tells the ranks of other processes. */
IGNIS__PRIVATE void ignis__comm_break_all(ignis__comm *comm, int code, int peer)
{
    ignis__comm_break(comm, code, peer);
    if (comm->outer)
        ignis__comm_groups_settle(comm);
    else if (comm->job)
        ignis__job_send_all(comm->job, comm->member, comm->size, IGNIS__JOB_ABORT, comm->watch.key);
}

/*  Breaks a communicator on all ranks if its NCCL has failed: no other rank could end what the others wait
    for. Any thread may call it. */
IGNIS__PRIVATE void ignis__comm_nccl_check(ignis__comm *comm)
{
    int error = ignis__atomic_load(&comm->nccl_there) ? ignis__nccl_error(comm->memory->nccl) : 0;
    if (error)
        ignis__comm_break_all(comm, IGNIS__COMM_NCCL_FAILED, error);
}

/*  Returns the code of what has broken a communicator, IGNIS__COMM_TIMEOUT or another; 0: it works. *peer: the rank at
    fault, -1 if unknown. */
IGNIS__PRIVATE int ignis__comm_failure_code(const ignis__comm *comm, int *peer)
{
    const ignis__comm_record *record = comm->memory->record;
    uint64_t broken = ignis__atomic_load(&comm->broken), code = record ? ignis__atomic_load(&record->code) : 0;
    *peer = code ? (int)record->peer : broken ? (int)(broken >> 8 & 0xFFFFFF) : -1;
    if (*peer >= comm->size || (broken & 0xFF) == IGNIS__COMM_NCCL_FAILED)
        *peer = -1;
    return (int)(code ? code : broken & 0xFF);
}

/*  Returns what has broken a communicator, or IGNIS_DIAG_NONE; *peer: the rank at fault, -1 if unknown. */
IGNIS__PRIVATE ignis_diagnostic ignis__comm_failure(const ignis__comm *comm, int *peer)
{
    static const ignis_diagnostic diagnostics[] = {IGNIS_DIAG_NONE,          IGNIS_DIAG_COMM_TIMEOUT,
                                                   IGNIS_DIAG_COMM_MISMATCH, IGNIS_DIAG_COMM_PEER,
                                                   IGNIS_DIAG_COMM_MISMATCH, IGNIS_DIAG_NCCL_CALL};
    const int code = ignis__comm_failure_code(comm, peer);
    return diagnostics[code >= 0 && code < IGNIS__COUNT(diagnostics) ? code : IGNIS__COMM_PEER];
}

/*  >>comm.group - groups: communicators of some ranks of one, that fail with it and take turns with it

    A library makes them for work that its caller begins on one communicator, so their failures are failures of that
    one: of any group, on all ranks of the outer communicator, with the numbers that ranks have there.
    Uses: comm.c, messages of the job.
    Invariants: operations of a communicator and of its groups run one after the other on a device; a group ends before
    its outer communicator.
    Locks: outer->groups_lock around the list of groups; it is taken after the job's lock and that of a slot. */

/* Of init_rank.c. */
IGNIS__PRIVATE ignis_comm ignis__comm_make_dry(const char *call, int rank, int size,
                                               const ignis__comm_options *options);
IGNIS__PRIVATE ignis_comm ignis__comm_split(const char *call, ignis_comm handle, int color, int key,
                                            const ignis__comm_group *group);

/*  Returns the rank in the outer communicator of a rank of a group; without an outer one the rank itself; -1 for -1. */
IGNIS__PRIVATE int ignis__comm_outer_rank(const ignis__comm *comm, int rank)
{
    int i;
    if (!comm->outer || rank < 0)
        return rank;
    if (rank >= comm->size)
        return -1;
    for (i = comm->outer->size - 1; i >= 0 && comm->outer->member[i] != comm->member[rank]; i--)
        ;
    return i;
}

/*  Breaks a communicator on all ranks, which are told the code and the rank at fault (-1: unknown). */
IGNIS__PRIVATE void ignis__comm_break_told(ignis__comm *comm, int code, int peer)
{
    ignis__job_fault cause;
    if (code == IGNIS__COMM_NCCL_FAILED || code == IGNIS__COMM_PEER) { /* the others take this rank for the cause */
        cause.rank = code == IGNIS__COMM_PEER && peer >= 0 ? comm->member[peer] : comm->job->rank;
        cause.code = IGNIS__COMM_PEER;
    } else {
        cause.rank = peer >= 0 ? comm->member[peer] : -1;
        cause.code = code;
    }
    ignis__comm_break(comm, code, peer);
    ignis__job_send_fault(comm->job, comm->member, comm->size, comm->watch.key, &cause);
}

/*  Finds a group that is broken. Returns what broke it, 0: none is; *peer: the outer rank at fault. */
static int ignis__comm_groups_broken(ignis__comm *outer, int *peer)
{
    const ignis__comm *group;
    int code = 0;
    ignis__mutex_lock(&outer->groups_lock);
    for (group = outer->groups; group && !code; group = group->next_group) {
        code = ignis__comm_failure_code(group, peer);
        if (code == IGNIS__COMM_NCCL_FAILED)
            *peer = (int)(ignis__atomic_load(&group->broken) >> 8 & 0xFFFFFF); /* NCCL's error */
        else if (code)
            *peer = ignis__comm_outer_rank(group, *peer);
    }
    ignis__mutex_unlock(&outer->groups_lock);
    return code;
}

/*  Breaks the groups of a communicator from the host. Any thread may call it. */
IGNIS__PRIVATE void ignis__comm_groups_break(ignis__comm *outer)
{
    ignis__comm *group;
    int peer;
    ignis__mutex_lock(&outer->groups_lock);
    for (group = outer->groups; group; group = group->next_group)
        if (!ignis__comm_failure_code(group, &peer))
            ignis__comm_break(group, IGNIS__COMM_PEER, -1);
    ignis__mutex_unlock(&outer->groups_lock);
}

/*  Makes a failure of a communicator one of its groups, and a failure of one of them its own on all ranks. Any thread
    may call it. */
IGNIS__PRIVATE void ignis__comm_groups_settle(ignis__comm *comm)
{
    ignis__comm *outer = comm->outer ? comm->outer : comm;
    int code, peer, own;
    if (!ignis__atomic_load(&outer->has_groups))
        return;
    own = ignis__comm_failure_code(outer, &peer);
    code = own ? 0 : ignis__comm_groups_broken(outer, &peer);
    if (code)
        ignis__comm_break_told(outer, code, peer);
    else if (own)
        ignis__comm_groups_break(outer);
}

/*  Finds and holds the group whose kernels have found what broke a communicator; NULL if no group has. */
IGNIS__PRIVATE ignis__comm *ignis__comm_group_at_fault(const ignis__comm *outer)
{
    ignis__comm *comm = (ignis__comm *)outer, *group; /* its lock alone is written */
    int peer, code = ignis__comm_failure_code(outer, &peer);
    ignis__mutex_lock(&comm->groups_lock);
    for (group = comm->groups; group; group = group->next_group)
        if (group->memory->record && (int)ignis__atomic_load(&group->memory->record->code) == code &&
            ignis__comm_outer_rank(group, (int)group->memory->record->peer) == peer)
            break;
    if (group)
        group = (ignis__comm *)ignis__pool_hold(&ignis__comms, group->slot.handle);
    ignis__mutex_unlock(&comm->groups_lock);
    return group;
}

/*  Makes a communicator that is being created a group of `outer`. In it a rank waits `patience` times as long. */
IGNIS__PRIVATE void ignis__comm_group_begin(ignis__comm *outer, ignis__comm *group, int patience)
{
    (void)ignis__pool_hold_more(&outer->slot);
    group->outer = outer;
    group->options.timeout_ns *= patience;
}

/*  Removes a group that ends from the list. */
IGNIS__PRIVATE void ignis__comm_group_unlist(ignis__comm *group)
{
    ignis__comm **at;
    ignis__mutex_lock(&group->outer->groups_lock);
    for (at = &group->outer->groups; *at && *at != group; at = &(*at)->next_group)
        ;
    if (*at)
        *at = group->next_group;
    ignis__mutex_unlock(&group->outer->groups_lock);
}

#ifndef IGNIS_NO_TENSORS
/*  Lists a group that is complete: from here on it and the others fail together. */
static void ignis__comm_group_list(ignis__comm *outer, ignis__comm *group)
{
    ignis__mutex_lock(&outer->groups_lock);
    group->next_group = outer->groups;
    outer->groups = group;
    ignis__mutex_unlock(&outer->groups_lock);
    ignis__atomic_store(&outer->has_groups, 1);
    if (outer->job)
        ignis__job_watch_tick(outer->job, &outer->watch);
}

/*  Makes a group of the ranks of `outer` with one color, in their order; in a dry run it is `rank` of `size`. All ranks
    call it with one key. No handle on failure. */
IGNIS__PRIVATE ignis_comm ignis__comm_group_make(const char *call, ignis_comm handle, const ignis__comm_group *what)
{
    ignis__comm *outer = ignis__comm_hold(call, handle), *group = NULL;
    ignis_comm made = IGNIS__ZERO;
    if (outer && ignis__global.dry_run)
        made = ignis__comm_make_dry(call, what->rank, what->size, &outer->options);
    else if (outer)
        made = ignis__comm_split(call, handle, what->color, what->key, what);
    if (made.id)
        group = ignis__comm_hold(call, made);
    if (group && group->outer)
        ignis__comm_group_list(outer, group);
    if (group)
        ignis__comm_drop(call, group);
    if (outer)
        ignis__comm_drop(call, outer);
    return made;
}
#endif /* IGNIS_NO_TENSORS */

/*  >>comm.vote - votes: the steps of creating a communicator

    After each step all ranks tell whether it succeeded; all go on or all stop.
    Uses: agreements of the job.
    Invariants: every rank learns the failure of the first rank that failed.
    Locks: comm->agreement from begin to end. */

/*  Begins the agreement of ranks that create a communicator; no other thread has it. */
IGNIS__PRIVATE void ignis__agreement_begin_new(ignis__agreement *agreement, ignis__comm *comm)
{
    memset(agreement, 0, sizeof *agreement);
    agreement->job = comm->job;
    agreement->watch = &comm->watch;
    agreement->member = comm->member;
    agreement->count = comm->size;
    agreement->me = comm->rank;
    agreement->key = comm->watch.key;
    agreement->deadline = ignis__monotonic_ns() + comm->options.timeout_ns;
}

/*  Begins an agreement of all ranks of a communicator, one at a time. What a rank has given up before does
    not count in it. */
IGNIS__PRIVATE void ignis__agreement_begin(ignis__agreement *agreement, ignis__comm *comm, ignis__agreement_kind kind,
                                           uint64_t hash)
{
    ignis__mutex_lock(&comm->agreement);
    ignis__job_catch_up(comm->job);
    ignis__agreement_begin_new(agreement, comm);
    agreement->attempt = ++comm->attempts;
    agreement->print = IGNIS__AGREEMENT_PRINT(kind, hash);
}

IGNIS__PRIVATE void ignis__agreement_end(const ignis__agreement *agreement, ignis__comm *comm)
{
    if (agreement->failed)
        ignis__agreement_give_up(agreement);
    comm->attempts = agreement->attempt;
    ignis__mutex_unlock(&comm->agreement);
}

/*  Tells if a failed agreement should be tried again: others are at a later attempt, or a rank of a shrink
    has died. */
IGNIS__PRIVATE bool ignis__agreement_retry(const ignis__agreement *agreement)
{
    return agreement->failed && (agreement->overtaken || (agreement->print >> 28 == IGNIS__AGREEMENT_SHRINK &&
                                                          agreement->failure.reason == IGNIS__AGREEMENT_LOST));
}

IGNIS__PRIVATE void ignis__step_begin(ignis__comm_setup *setup) { setup->before = ignis__quiet_begin(); }

/*  Ends a step with a vote, and a descriptor if fds is not NULL. True: success on all ranks. Else
    setup->mine is the vote of the first rank that failed. */
IGNIS__PRIVATE bool ignis__step_end(ignis__comm_setup *setup, int fd, int *fds)
{
    ignis__comm *comm = setup->comm;
    ignis__record failure;
    int i;
    ignis__quiet_end(&setup->before, &failure, setup->mine.why, sizeof setup->mine.why);
    setup->mine.failed = (int32_t)failure.diagnostic;
    setup->mine.driver_error = (int32_t)failure.driver_error;
    setup->lost = !ignis__agreement_step(&setup->agreement, &setup->mine, sizeof setup->mine, setup->all, fd, fds);
    if (setup->lost)
        return false;
    for (i = 0; i < comm->size; i++) {
        ignis__vote *vote = &setup->all[i];
        if (!vote->failed)
            continue;
        vote->why[sizeof vote->why - 1] = 0;
        setup->mine.failed = vote->failed > 0 && vote->failed < IGNIS_DIAG_COUNT ? vote->failed : IGNIS_DIAG_COMM_PEER;
        setup->mine.driver_error = vote->driver_error;
        if (i == comm->rank)
            snprintf(setup->mine.why, sizeof setup->mine.why, "%s", vote->why);
        else
            snprintf(setup->mine.why, sizeof setup->mine.why, "rank %d: %.230s", i, vote->why);
        for (i = 0; fds && i < comm->size; i++)
            ignis__fd_close(&fds[i]);
        return false;
    }
    return true;
}

/*  Reports why a communicator could not be created. */
IGNIS__COLD IGNIS__PRIVATE void ignis__comm_setup_report(ignis__comm_setup *setup)
{
    int error = setup->mine.driver_error;
    if (setup->lost)
        (void)ignis__agreement_failed(setup->call, &setup->agreement);
    else
        ignis__fail_because((ignis_diagnostic)setup->mine.failed, setup->call, error,
                            error ? ignis__cuda_name(error) : NULL, NULL, "%s", setup->mine.why);
}

/*  >>comm.region_setup - setting up regions: create, exchange, map, test

    Shares a region of each rank with all others, and tests every pair.
    Uses: votes, vmm blocks, shared host memory.
    Invariants: kernels use regions only after each pair of ranks has passed a write and a read.
    Locks: none; other threads do not have the communicator yet. */

/*  Maps a region of host memory, and pins it for the device. */
static bool ignis__region_map_staged(const char *call, ignis__comm_regions *regions, int i, int fd)
{
    regions->host[i] = ignis__shared_map(fd, (size_t)regions->bytes);
    if (!regions->host[i])
        return ignis__fail_false(errno == EINVAL ? IGNIS_DIAG_TRANSPORT_RECORD : IGNIS_DIAG_CHANNEL_IO, call,
                                 "cannot map the region of rank %d, %lld bytes of shared host memory: %s", i,
                                 (long long)regions->bytes, strerror(errno));
    if (IGNIS__CUDA_FAILED(call, regions->device, cuMemHostRegister_v2,
                           (regions->host[i], (size_t)regions->bytes,
                            (unsigned)IGNIS__CU_HOST_REGISTER_PORTABLE | (unsigned)IGNIS__CU_HOST_REGISTER_MAPPED)))
        return false;
    regions->pinned[i] = true;
    return !IGNIS__CUDA_FAILED(call, regions->device, cuMemHostGetDevicePointer_v2,
                               (&regions->address[i], regions->host[i], 0));
}

/*  Creates this rank's region; fds[0] is its descriptor for the others. */
static bool ignis__region_create(ignis__comm_setup *setup, bool staged, int *fds)
{
    ignis__comm *comm = setup->comm;
    ignis__comm_regions *regions = comm->memory->regions;
    ignis__vmm_block *mine = &regions->block[comm->rank];
    ignis_vmm_handle handle;
    setup->mine.bytes = regions->bytes = ignis__comm_region_bytes(comm->size);
    if (staged) {
        fds[0] = ignis__shared_make((size_t)regions->bytes);
        if (fds[0] >= 0)
            return ignis__region_map_staged(setup->call, regions, comm->rank, fds[0]);
        return ignis__fail_false(IGNIS_DIAG_CHANNEL_IO, setup->call, "cannot share %lld bytes of host memory: %s",
                                 (long long)regions->bytes, strerror(errno));
    }
    if (!ignis__vmm_block_create(setup->call, comm->device, regions->bytes, NULL, 0, true, mine))
        return false;
    setup->mine.bytes = regions->bytes = mine->size;
    regions->address[comm->rank] = mine->address;
    if (!ignis__physical_export(setup->call, mine->memory, &handle))
        return false;
    fds[0] = ignis__vmm_handle_fd(&handle);
    return true;
}

/*  Maps the regions of the other ranks. */
static bool ignis__regions_map(ignis__comm_setup *setup, bool staged, int *fds)
{
    ignis__comm *comm = setup->comm;
    ignis__comm_regions *regions = comm->memory->regions;
    ignis_vmm_handle handle;
    int i;
    memset(&handle, 0, sizeof handle);
    for (i = 0; i < comm->size; i++) {
        ignis__vmm_handle_set_fd(&handle, fds[i]);
        if (i == comm->rank)
            continue;
        if (fds[i] < 0 || setup->all[i].bytes != regions->bytes)
            return ignis__fail_false(
                IGNIS_DIAG_COMM_PEER, setup->call, "rank %d has a region of %lld bytes%s, this rank one of %lld", i,
                (long long)setup->all[i].bytes, fds[i] < 0 ? " without a descriptor" : "", (long long)regions->bytes);
        if (staged ? !ignis__region_map_staged(setup->call, regions, i, fds[i])
                   : !ignis__vmm_block_import(setup->call, comm->device, &handle, regions->bytes, &regions->block[i]))
            return false;
        if (!staged)
            regions->address[i] = regions->block[i].address;
    }
    return true;
}

/*  Waits for a stream until the deadline. Its work is done afterwards, unless *late. */
static bool ignis__stream_wait(const char *call, ignis__device *device, void *stream, int64_t deadline, bool *late)
{
    int error;
    while ((error = IGNIS__CUDA(cuStreamQuery, (stream))) == IGNIS__CU_NOT_READY) {
        if (ignis__monotonic_ns() >= deadline) {
            ignis__fail(IGNIS_DIAG_COMM_TIMEOUT, call,
                        "a copy to or from another rank's memory did not end before the deadline");
            *late = true;
            return false;
        }
        ignis__sleep_us(20);
    }
    if (error == 0)
        return !IGNIS__CUDA_FAILED(call, device, cuStreamSynchronize, (stream));
    (void)IGNIS__CUDA(cuStreamSynchronize, (stream));
    return ignis__cuda_check(call, device, "cuStreamQuery", error) == IGNIS_OK;
}

/*  Fills the bytes that rank `from` writes into the region of rank `to`. */
static void ignis__probe_fill(const ignis__comm *comm, int from, int to, unsigned char *out)
{
    uint64_t hash = ignis__hash(comm->watch.key, &from, sizeof from);
    int i;
    hash = ignis__hash(hash, &to, sizeof to);
    for (i = 0; i < IGNIS__PROBE_BYTES; i++)
        out[i] = (unsigned char)(hash >> i % 8 * 8) ^ (unsigned char)i;
}

/*  Copies between host memory and the first bytes of the regions, on a separate stream: rank i has data + i *
    piece, at + offset. */
static bool ignis__probe_copy(ignis__comm_setup *setup, unsigned char *data, size_t piece, size_t offset, bool write)
{
    ignis__comm *comm = setup->comm;
    const ignis__address *address = comm->memory->regions->address;
    void *stream = NULL;
    bool ok;
    int i;
    ok = !IGNIS__CUDA_FAILED(setup->call, comm->device, cuStreamCreate, (&stream, IGNIS__CU_STREAM_NON_BLOCKING));
    for (i = 0; ok && i < comm->size; i++)
        ok = write ? !IGNIS__CUDA_FAILED(setup->call, comm->device, cuMemcpyHtoDAsync_v2,
                                         (address[i] + offset, data + (size_t)i * piece, piece, stream))
                   : !IGNIS__CUDA_FAILED(setup->call, comm->device, cuMemcpyDtoHAsync_v2,
                                         (data + (size_t)i * piece, address[i] + offset, piece, stream));
    if (ok)
        ok = ignis__stream_wait(setup->call, comm->device, stream, setup->agreement.deadline,
                                &comm->memory->regions->late);
    else if (stream) /* copies before the failed one use memory that is freed now */
        (void)IGNIS__CUDA(cuStreamSynchronize, (stream));
    if (stream)
        (void)IGNIS__CUDA(cuStreamDestroy_v2, (stream));
    return ok;
}

/*  Writes into every region. */
static bool ignis__probe_write(ignis__comm_setup *setup, bool staged, int *fds)
{
    ignis__comm *comm = setup->comm;
    unsigned char data[IGNIS_COMM_MAX_RANKS * IGNIS__PROBE_BYTES];
    int i;
    (void)staged, (void)fds;
    for (i = 0; i < comm->size; i++)
        ignis__probe_fill(comm, comm->rank, i, data + i * IGNIS__PROBE_BYTES);
    return ignis__probe_copy(setup, data, IGNIS__PROBE_BYTES, (size_t)comm->rank * IGNIS__PROBE_BYTES, true);
}

/*  Reads what all ranks wrote into every region. */
static bool ignis__probe_read(ignis__comm_setup *setup, bool staged, int *fds)
{
    ignis__comm *comm = setup->comm;
    unsigned char data[IGNIS_COMM_MAX_RANKS * IGNIS_COMM_MAX_RANKS * IGNIS__PROBE_BYTES], expected[IGNIS__PROBE_BYTES];
    size_t piece = (size_t)comm->size * IGNIS__PROBE_BYTES;
    int from, to;
    (void)staged, (void)fds;
    memset(data, 0, sizeof data);
    if (!ignis__probe_copy(setup, data, piece, 0, false))
        return false;
    for (to = 0; to < comm->size; to++)
        for (from = 0; from < comm->size; from++) {
            ignis__probe_fill(comm, from, to, expected);
            if (memcmp(data + (size_t)to * piece + (size_t)from * IGNIS__PROBE_BYTES, expected, IGNIS__PROBE_BYTES) ==
                0)
                continue;
            return ignis__fail_false(IGNIS_DIAG_TRANSPORT_UNAVAILABLE, setup->call,
                                     "the bytes of rank %d in the region of rank %d differ when rank %d reads them",
                                     from, to, comm->rank);
        }
    return true;
}

/*  Sets up regions of device or host memory, and tests them by a write and a read between each two ranks. */
IGNIS__PRIVATE bool ignis__regions_setup(ignis__comm_setup *setup, bool staged)
{
    static bool (*const steps[])(ignis__comm_setup * setup, bool staged, int *fds) = {
        ignis__region_create, ignis__regions_map, ignis__probe_write, ignis__probe_read};
    ignis__comm *comm = setup->comm;
    int fds[IGNIS_COMM_MAX_RANKS], mine, i, step;
    ignis__binding binding;
    bool ok = true;
    for (i = 0; i < comm->size; i++)
        fds[i] = -1;
    for (step = 0; ok && step < IGNIS__COUNT(steps); step++) {
        ignis__step_begin(setup);
        if (ignis__device_enter(setup->call, comm->device, &binding)) {
            (void)steps[step](setup, staged, fds);
            ignis__device_leave(&binding);
        }
        mine = step == 0 ? fds[0] : -1; /* sent to the others; theirs come back */
        for (i = 0; step > 0 && i < comm->size; i++)
            ignis__fd_close(&fds[i]);
        ok = ignis__step_end(setup, mine, step == 0 ? fds : NULL);
        ignis__fd_close(&mine);
    }
    if (!ok)
        ignis__comm_regions_clear(setup->call, comm->memory->regions);
    return ok;
}

/*  >>comm.create - creating a communicator of ranks that have met

    Chooses the transport, sets up regions or NCCL in steps with votes, and watches the members.
    Uses: votes, region_setup.c, NCCL, the job.
    Invariants: all ranks succeed or all fail with the reason of the first one that failed.
    Locks: comm->agreement around anything that all ranks do together. */

/*  Enforces the deadline for operations of NCCL, which has none: while one runs, and after another one has
    failed. Runs on the watcher's thread. */
static void ignis__comm_check_nccl_deadline(ignis__comm *comm)
{
    const ignis__comm_record *record = comm->memory->record;
    uint64_t running = record ? ignis__atomic_load(&record->nccl) : 0;
    int64_t now = ignis__monotonic_ns();
    int peer;
    if (running != comm->nccl_seen || !running) {
        comm->nccl_seen = running;
        comm->nccl_since = now;
    } else if (now - comm->nccl_since > comm->options.timeout_ns) {
        ignis__comm_break(comm, IGNIS__COMM_TIMEOUT, -1);
    } else {
        ignis__comm_nccl_check(comm);
    }
    if (ignis__atomic_load(&comm->nccl_there) && ignis__comm_failure(comm, &peer) != IGNIS_DIAG_NONE)
        ignis__nccl_abort(comm->memory->nccl);
}

/*  Handles an event of a member, on the thread that reads the job's messages. A member may leave after the
    last operation while this rank is still in it. */
static void ignis__comm_notify(void *owner, ignis__job_event event, int member, int code)
{
    ignis__comm *comm = (ignis__comm *)owner;
    const bool is_known = code > IGNIS__COMM_FINE && code < IGNIS__COMM_NCCL_FAILED;
    if (event == IGNIS__JOB_TICK) {
        ignis__comm_check_nccl_deadline(comm);
        ignis__comm_groups_settle(comm);
    } else if (event != IGNIS__JOB_LEFT) {
        ignis__comm_break(comm, event == IGNIS__JOB_FAILED && is_known ? code : IGNIS__COMM_PEER, member);
    }
}

/*  Creates an empty communicator of members (ranks of the job; NULL: all). */
IGNIS__PRIVATE ignis__comm *ignis__comm_prepare(const char *call, ignis__job *job, ignis__device *device,
                                                const int *member, int count, int me, uint64_t key,
                                                const ignis__comm_options *options)
{
    ignis__comm *comm = ignis__comm_new(call, device, me, count, options, NULL);
    int i;
    if (!comm)
        return NULL;
    for (i = 0; i < count; i++)
        comm->member[i] = member ? member[i] : i;
    comm->watch.key = key;
    comm->watch.member = comm->member;
    comm->watch.count = count;
    comm->watch.gone = comm->gone;
    comm->watch.notify = ignis__comm_notify;
    comm->watch.owner = comm;
    comm->job = job;
    ignis__job_hold(job);
    return comm;
}

IGNIS__PRIVATE int ignis__comm_hosts(const ignis__comm *comm, int *local_rank, int *local_size)
{
    const ignis__job_watch *watch = &comm->watch;
    const ignis__job_rank *ranks = comm->job->ranks;
    int i, k, hosts = 0;
    *local_rank = *local_size = 0;
    for (i = 0; i < watch->count; i++) {
        bool here = ranks[watch->member[i]].host == ranks[comm->job->rank].host;
        *local_size += here;
        *local_rank += here && i < comm->rank;
        for (k = 0; k < i && ranks[watch->member[k]].host != ranks[watch->member[i]].host; k++)
            ;
        hosts += k == i;
    }
    return hosts;
}

/*  Joins NCCL: rank 0 creates an id, all open NCCL, then all join. False: one of them could not, or is
    lost. */
static bool ignis__comm_join(ignis__comm_setup *setup)
{
    ignis__comm *comm = setup->comm;
    ignis__nccl_comm *nccl;
    ignis__nccl_id id;
    int i, local_rank, local_size;
    ignis__step_begin(setup);
    if (comm->rank == 0)
        (void)ignis__nccl_make_id(setup->call, &setup->mine.nccl);
    else
        (void)ignis__nccl_open(setup->call);
    setup->mine.release = (int32_t)ignis__libraries[IGNIS_LIBRARY_NCCL].release;
    if (!ignis__step_end(setup, -1, NULL))
        return false;
    for (i = 0; i < comm->size; i++)
        if (setup->all[i].release != setup->all[0].release) {
            setup->mine.failed = IGNIS_DIAG_LIBRARY_SYMBOL;
            snprintf(setup->mine.why, sizeof setup->mine.why, "NCCL is version %d on rank 0 and version %d on rank %d",
                     (int)setup->all[0].release, (int)setup->all[i].release, i);
            return false;
        }
    id = setup->all[0].nccl;
    ignis__step_begin(setup);
    nccl = comm->memory->nccl = ignis__nccl_begin(setup->call, comm->device, &id, comm->rank, comm->size,
                                                  setup->agreement.deadline - ignis__monotonic_ns());
    if (nccl) {
        ignis__atomic_store(&comm->nccl_there, 1); /* if a rank dies now, the watcher ends the wait */
        (void)ignis__nccl_wait_joined(setup->call, nccl);
        nccl->patience_ns = comm->options.timeout_ns;
        nccl->hosts = ignis__comm_hosts(comm, &local_rank, &local_size) > 1;
    }
    setup->agreement.deadline += comm->options.timeout_ns; /* a rank that waited in vain comes later */
    return ignis__step_end(setup, -1, NULL);
}

/*  Begins a setup of a communicator that exists; the caller frees setup->all. False, and reported, if out of memory. */
IGNIS__PRIVATE bool ignis__comm_setup_begin(const char *call, ignis__comm *comm, ignis__comm_setup *setup)
{
    memset(setup, 0, sizeof *setup);
    setup->call = call;
    setup->comm = comm;
    setup->all = (ignis__vote *)ignis__alloc_for(call, sizeof *setup->all * (size_t)comm->size);
    if (!setup->all) /* the others wait until the deadline and are told why */
        ignis__comm_break_all(comm, IGNIS__COMM_PEER, comm->rank);
    return setup->all != NULL;
}

/*  Joins NCCL at the first operation that it does faster. If one rank cannot, all keep the built-in kernels
    for good. False: a rank has died or did not come. */
IGNIS__COLD IGNIS__PRIVATE bool ignis__comm_join_late(const char *call, ignis__comm *comm)
{
    ignis__comm_setup setup;
    int peer;
    bool ok;
    if (!ignis__comm_setup_begin(call, comm, &setup))
        return false;
    ignis__job_watch_tick(comm->job, &comm->watch);
    ignis__agreement_begin(&setup.agreement, comm, IGNIS__AGREEMENT_NCCL, 0);
    do
        ok = ignis__comm_join(&setup);
    while (!ok && setup.agreement.overtaken && !comm->memory->nccl);
    ignis__agreement_end(&setup.agreement, comm);
    ignis__free(setup.all);
    if (!ok && comm->memory->nccl)
        ignis__nccl_abort(comm->memory->nccl);
    if (setup.lost) {
        for (peer = comm->size - 1; peer >= 0 && comm->member[peer] != setup.agreement.failure.rank; peer--)
            ;
        ignis__comm_break_all(
            comm, setup.agreement.failure.reason == IGNIS__AGREEMENT_LATE ? IGNIS__COMM_TIMEOUT : IGNIS__COMM_PEER,
            peer);
        return ignis__agreement_failed(call, &setup.agreement);
    }
    comm->nccl_state = ok ? IGNIS__COMM_NCCL_JOINED : IGNIS__COMM_NCCL_REFUSED;
    snprintf(comm->nccl_reason, sizeof comm->nccl_reason,
             ok ? "NCCL runs large operations" : "NCCL is not used: %.160s", setup.mine.why);
    comm->nccl_reason[strcspn(comm->nccl_reason, "\n")] = 0; /* the first line is enough */
    ignis__atomic_store(&comm->nccl_told, 1);
    ignis__log(IGNIS_LOG_INFO, IGNIS_DIAG_NONE, "%s: rank %d of %d: %s", call, comm->rank, comm->size,
               comm->nccl_reason);
    return true;
}

/*  Chooses the transport, as all ranks do from the same facts, and sets it up. */
static bool ignis__comm_make_transport(ignis__comm_setup *setup)
{
    ignis__comm *comm = setup->comm;
    int local_rank, local_size, hosts = ignis__comm_hosts(comm, &local_rank, &local_size);
    char apart[96] = "";
    if (hosts > 1)
        snprintf(apart, sizeof apart, "the ranks are on %d hosts", hosts);
    else if (comm->size > IGNIS_COMM_MAX_RANKS)
        snprintf(apart, sizeof apart, "%d ranks are more than %d", comm->size, IGNIS_COMM_MAX_RANKS);
    if (*apart && (comm->options.transport == IGNIS_COMM_PEER || comm->options.transport == IGNIS_COMM_STAGED)) {
        setup->mine.failed = IGNIS_DIAG_TRANSPORT_UNAVAILABLE;
        snprintf(setup->mine.why, sizeof setup->mine.why, "%s was requested, but %s, which needs NCCL",
                 comm->options.transport == IGNIS_COMM_PEER ? "IGNIS_COMM_PEER" : "IGNIS_COMM_STAGED", apart);
        return false;
    }
    if (*apart || comm->options.transport == IGNIS_COMM_NCCL) {
        comm->transport = IGNIS_COMM_NCCL;
        snprintf(comm->reason, sizeof comm->reason, "NCCL, as %s", *apart ? apart : "it was requested");
        return ignis__comm_join(setup);
    }
    comm->transport = IGNIS_COMM_PEER;
    if (comm->size == 1) {
        snprintf(comm->reason, sizeof comm->reason, "one rank");
        return true;
    }
    if (comm->options.transport != IGNIS_COMM_STAGED) {
        snprintf(comm->reason, sizeof comm->reason, "all ranks write and read each other's memory");
        if (ignis__regions_setup(setup, false))
            return true;
        if (setup->lost || comm->options.transport == IGNIS_COMM_PEER)
            return false;
        snprintf(comm->reason, sizeof comm->reason,
                 "through host memory, as the ranks cannot share device memory: %.170s", setup->mine.why);
    } else {
        snprintf(comm->reason, sizeof comm->reason, "through host memory, as it was requested");
    }
    comm->transport = IGNIS_COMM_STAGED;
    return ignis__regions_setup(setup, true);
}

/*  Sets up a prepared communicator together with its other ranks, and creates its handle. `agreement` is the
    agreement in progress, NULL right after the rendezvous. On failure the communicator is destroyed; the
    failure is not reported if ignis__agreement_retry. */
IGNIS__COLD IGNIS__PRIVATE ignis_comm ignis__comm_make(const char *call, ignis__comm *comm, ignis__agreement *agreement)
{
    const ignis__comm_regions *regions = comm->memory->regions;
    ignis_comm handle = {0};
    ignis__comm_setup setup;
    ignis__record dropped;
    bool ok = false;
    int i;
    memset(&setup, 0, sizeof setup);
    setup.call = call;
    setup.comm = comm;
    ignis__agreement_begin_new(&setup.agreement, comm);
    if (agreement) {
        setup.agreement.attempt = agreement->attempt;
        setup.agreement.print = agreement->print;
        setup.agreement.key = agreement->key;
    }
    setup.all = (ignis__vote *)ignis__alloc(sizeof *setup.all * (size_t)comm->size);
    if (!setup.all) {
        setup.mine.failed = IGNIS_DIAG_HOST_MEMORY;
        snprintf(setup.mine.why, sizeof setup.mine.why, "out of host memory for %d ranks", comm->size);
    } else if (ignis__comm_make_transport(&setup)) {
        ignis__step_begin(&setup);
        if (regions->host[comm->rank]) /* regions of device memory are cleared below */
            memset(regions->host[comm->rank], 0, IGNIS_COMM_MAX_RANKS * IGNIS__PROBE_BYTES);
        (void)ignis__comm_start(call, comm);
        setup.mine.most_blocks = (int32_t)comm->most_blocks;
        setup.mine.tune = ignis__hash(IGNIS__HASH_START, &comm->tune, sizeof comm->tune);
        ignis__job_watch_begin(comm->job, &comm->watch);
        if (comm->memory->nccl)
            ignis__job_watch_tick(comm->job, &comm->watch);
        ok = ignis__step_end(&setup, -1, NULL);
        for (i = 0; ok && i < comm->size; i++) { /* all launch as many as the smallest GPU runs */
            comm->most_blocks =
                setup.all[i].most_blocks < comm->most_blocks ? setup.all[i].most_blocks : comm->most_blocks;
            if (setup.all[i].tune == setup.all[0].tune)
                continue;
            setup.mine.failed = IGNIS_DIAG_COMM_ENVIRONMENT;
            snprintf(setup.mine.why, sizeof setup.mine.why, "IGNIS_COMM_TUNE differs between rank 0 and rank %d", i);
            ok = false;
        }
    }
    if (agreement) {
        agreement->attempt = setup.agreement.attempt;
        agreement->failed = setup.agreement.failed;
        agreement->overtaken = setup.agreement.overtaken;
        agreement->failure = setup.agreement.failure;
    }
    if (!ok && !(agreement && ignis__agreement_retry(agreement)))
        ignis__comm_setup_report(&setup);
    ignis__free(setup.all);
    if (ok) {
        ignis__log(IGNIS_LOG_INFO, IGNIS_DIAG_NONE, "%s: rank %d of %d, device %d: %s", call, comm->rank, comm->size,
                   ignis__device_ordinal(comm->device), comm->reason);
        handle.id = ignis__pool_publish(&ignis__comms, comm);
        return handle;
    }
    setup.before = ignis__quiet_begin(); /* only the first failure is reported */
    ignis__comm_end(call, comm);
    ignis__quiet_end(&setup.before, &dropped, setup.mine.why, sizeof setup.mine.why);
    return handle;
}

/*  >>comm.algorithm - choosing how an operation runs: by packets or by flags, blocks, threads, chunks

    Two tables by operation, ranks and bytes; IGNIS_COMM_TUNE overrides them.
    Uses: communicators and tasks.
    Invariants: all ranks choose the same, as the choice follows from facts that they agreed on.
    Locks: none. */

IGNIS__PRIVATE const char *const ignis__comm_kinds[IGNIS__COMM_KIND_COUNT] = {
    "nothing",        "all_reduce", "reduce", "broadcast", "all_gather",
    "reduce_scatter", "all_to_all", "send",   "receive",   "barrier"};
IGNIS__PRIVATE const char *const ignis__comm_ops[IGNIS_OP_COUNT] = {"sum", "prod", "min", "max", "avg"};

#define IGNIS__COMM_ANY INT64_MAX

IGNIS__PRIVATE const struct ignis__comm_table_type ignis__comm_table[] = {
    {IGNIS__COMM_ALL_REDUCE, 2, 64 << 10, {IGNIS__COMM_BY_PACKETS, 64, 128, 0}},
    {IGNIS__COMM_ALL_REDUCE, 2, 256 << 10, {IGNIS__COMM_BY_PACKETS, 64, 512, 0}},
    {IGNIS__COMM_ALL_REDUCE, 2, 2 << 20, {IGNIS__COMM_BY_PARTS, 128, 480, 64 << 10}},
    {IGNIS__COMM_ALL_REDUCE, 4, 64 << 10, {IGNIS__COMM_BY_PACKETS, 64, 128, 0}},
    {IGNIS__COMM_ALL_REDUCE, 8, 32 << 10, {IGNIS__COMM_BY_PACKETS, 64, 128, 0}},
    {IGNIS__COMM_ALL_REDUCE, 8, 512 << 10, {IGNIS__COMM_BY_PACKETS_TWO, 64, 256, 0}},
    {IGNIS__COMM_ALL_REDUCE, 8, 2 << 20, {IGNIS__COMM_BY_SLICES, 64, 256, 64 << 10}},
    {IGNIS__COMM_ALL_REDUCE, 8, 64 << 20, {IGNIS__COMM_BY_SLICES, 128, 480, 32 << 10}},
    {IGNIS__COMM_ALL_REDUCE, 8, IGNIS__COMM_ANY, {IGNIS__COMM_BY_SLICES, 128, 480, 64 << 10}},
    {IGNIS__COMM_REDUCE, 4, 64 << 10, {IGNIS__COMM_BY_PACKETS, 64, 128, 0}},
    {IGNIS__COMM_REDUCE, 8, 32 << 10, {IGNIS__COMM_BY_PACKETS, 64, 128, 0}},
    {IGNIS__COMM_REDUCE, 2, IGNIS__COMM_ANY, {IGNIS__COMM_BY_PARTS, 128, 480, 64 << 10}},
    {IGNIS__COMM_REDUCE, 8, 256 << 10, {IGNIS__COMM_BY_PARTS, 128, 480, 64 << 10}},
    {IGNIS__COMM_REDUCE, 8, 64 << 20, {IGNIS__COMM_BY_SLICES, 128, 480, 32 << 10}},
    {IGNIS__COMM_REDUCE, 8, IGNIS__COMM_ANY, {IGNIS__COMM_BY_SLICES, 128, 480, 64 << 10}},
    {IGNIS__COMM_BROADCAST, 4, 64 << 10, {IGNIS__COMM_BY_PACKETS, 64, 128, 0}},
    {IGNIS__COMM_BROADCAST, 8, 32 << 10, {IGNIS__COMM_BY_PACKETS, 64, 128, 0}},
    {IGNIS__COMM_BROADCAST, 2, IGNIS__COMM_ANY, {IGNIS__COMM_BY_PARTS, 128, 480, 64 << 10}},
    {IGNIS__COMM_BROADCAST, 8, 256 << 10, {IGNIS__COMM_BY_PARTS, 128, 480, 64 << 10}},
    {IGNIS__COMM_BROADCAST, 8, 64 << 20, {IGNIS__COMM_BY_SLICES, 128, 480, 32 << 10}},
    {IGNIS__COMM_BROADCAST, 8, IGNIS__COMM_ANY, {IGNIS__COMM_BY_SLICES, 128, 480, 64 << 10}},
    {(ignis__comm_kind)0, 4, 64 << 10, {IGNIS__COMM_BY_PACKETS, 64, 256, 0}},
    {(ignis__comm_kind)0, 8, 32 << 10, {IGNIS__COMM_BY_PACKETS, 64, 256, 0}},
    {(ignis__comm_kind)0, 8, IGNIS__COMM_ANY, {IGNIS__COMM_BY_PARTS, 128, 480, 64 << 10}},
};

IGNIS__PRIVATE const struct ignis__comm_nccl_table_type ignis__comm_nccl_table[] = {
    {IGNIS__COMM_ALL_REDUCE, 2, 0},
    {IGNIS__COMM_ALL_REDUCE, 8, 64 << 20},
    {IGNIS__COMM_BROADCAST, 8, 64 << 20},
    {IGNIS__COMM_ALL_GATHER, 2, 512 << 20},
    {IGNIS__COMM_ALL_GATHER, 8, 64 << 20},
    {IGNIS__COMM_REDUCE_SCATTER, 2, 512 << 20},
    {IGNIS__COMM_REDUCE_SCATTER, 8, 64 << 20},
    {IGNIS__COMM_ALL_TO_ALL, 2, 128 << 20},
    {IGNIS__COMM_ALL_TO_ALL, 8, 64 << 20},
};

/*  Returns the bytes of a slice up to which one phase of packets is used. */
static int64_t ignis__comm_packets_limit(int ranks)
{
    return IGNIS__COMM_PACKETS_SIZE / 2 / (ranks > 4 ? 8 : ranks > 2 ? 4 : 2);
}

/*  Applies IGNIS_COMM_TUNE to a choice of the table. */
static void ignis__comm_tune_method(const ignis__comm_tune *tune, ignis__comm_method *method)
{
    bool packets = method->algorithm == IGNIS__COMM_BY_PACKETS || method->algorithm == IGNIS__COMM_BY_PACKETS_TWO;
    int64_t blocks = packets ? tune->ll_blocks : tune->blocks, threads = packets ? tune->ll_threads : tune->threads;
    if (blocks >= 0)
        method->blocks = (int)ignis__clamp(blocks, 1, IGNIS__COMM_BLOCKS);
    if (threads >= 0)
        method->threads = (int)ignis__clamp(threads / 32 * 32, 32,
                                            (packets ? IGNIS__COMM_PACKET_THREADS : IGNIS__COMM_FLAG_THREADS) - 32);
    if (tune->chunk >= 0)
        method->chunk = (int)ignis__clamp(tune->chunk, 0, IGNIS__COMM_DATA_SIZE);
}

IGNIS__PRIVATE ignis__comm_method ignis__comm_choose(const ignis__comm *comm, const ignis__comm_task *task)
{
    const ignis__comm_tune *tune = &comm->tune;
    int64_t bytes = task->count * ignis__dtypes[task->dtype].size;
    ignis__comm_method method;
    int i;
    for (i = 0; i < IGNIS__COUNT(ignis__comm_table) - 1; i++)
        if ((!ignis__comm_table[i].kind || ignis__comm_table[i].kind == task->kind) &&
            comm->size <= ignis__comm_table[i].most_ranks && bytes <= ignis__comm_table[i].most_bytes)
            break;
    method = ignis__comm_table[i].method;
    if (tune->ll_max >= 0 || tune->ll_two_max >= 0 || tune->one_shot_max >= 0) {
        bool fits = bytes <= ignis__comm_packets_limit(comm->size), packets;
        method.algorithm = bytes <= tune->one_shot_max || task->kind > IGNIS__COMM_BROADCAST ? IGNIS__COMM_BY_PARTS
                                                                                             : IGNIS__COMM_BY_SLICES;
        if (fits && bytes <= tune->ll_max)
            method.algorithm = IGNIS__COMM_BY_PACKETS;
        else if (fits && bytes <= tune->ll_two_max && task->kind == IGNIS__COMM_ALL_REDUCE)
            method.algorithm = IGNIS__COMM_BY_PACKETS_TWO;
        packets = method.algorithm <= IGNIS__COMM_BY_PACKETS_TWO;
        method.blocks = packets ? 64 : 128;
        method.threads = packets ? 256 : 480;
        method.chunk = 64 << 10;
    }
    ignis__comm_tune_method(tune, &method);
    return method;
}

IGNIS__PRIVATE ignis__comm_plan ignis__comm_plan_launch(const ignis__comm *comm, const ignis__comm_method *method,
                                                        int64_t bytes, ignis__comm_call *to)
{
    int most = method->blocks < comm->most_blocks ? method->blocks : comm->most_blocks;
    bool two = method->algorithm == IGNIS__COMM_BY_PACKETS_TWO || method->algorithm == IGNIS__COMM_BY_SLICES;
    ignis__comm_plan plan;
    int64_t units, blocks, chunk;
    plan.threads = (unsigned)method->threads + 32;
    if (method->algorithm == IGNIS__COMM_BY_PACKETS || method->algorithm == IGNIS__COMM_BY_PACKETS_TWO) {
        units = ignis__ceil_div(bytes, two ? 8 * comm->size : 8);
        blocks = ignis__clamp(ignis__ceil_div(units, method->threads), 1, most);
        plan.kernel = two ? IGNIS__COMM_KERNEL_PACKETS_TWO : IGNIS__COMM_KERNEL_PACKETS;
        to->chunk = (int)units;
        to->steps = 1;
    } else {
        units = ignis__ceil_div(bytes, two ? 16 * (to->none < comm->size ? comm->size - 1 : comm->size) : 16);
        blocks = ignis__clamp(ignis__ceil_div(units, method->threads), 1, most);
        chunk = (two ? IGNIS__COMM_DATA_SIZE / IGNIS__COMM_TWO_PHASE_SLOTS
                     : (int64_t)2 * IGNIS__COMM_DATA_SIZE / IGNIS__COMM_ONE_PHASE_SLOTS) /
                ((int64_t)blocks * comm->size * 16);
        if (chunk > method->chunk / 16 / comm->size)
            chunk = method->chunk / 16 / comm->size;
        chunk = chunk < 32 ? 32 : chunk < method->threads ? chunk / 32 * 32 : chunk / method->threads * method->threads;
        to->steps = (int)ignis__clamp(ignis__ceil_div(units, blocks * chunk), 1, INT32_MAX);
        to->chunk = (int)ignis__clamp(ignis__ceil_div(ignis__ceil_div(units, blocks * to->steps), 32) * 32, 32, chunk);
        plan.kernel = two ? IGNIS__COMM_KERNEL_SLICES : IGNIS__COMM_KERNEL_PARTS;
    }
    plan.blocks = (unsigned)blocks;
    return plan;
}

/*  >>comm.failure - what broke a communicator, in words

    Fingerprints of operations, and the sentence that ignis_status_message returns.
    Uses: communicators.
    Invariants: a fingerprint has the same layout in kernels/collective.cuh.
    Locks: none. */

/*  Returns the fingerprint that ranks must agree on: kind (4 bits) | op (4) | dtype (4) | by NCCL (1) | root
    (3) | elements of a slice (40) | 8 bits for kernels. The launch follows from it and from what the ranks
    agreed on at the start. */
IGNIS__PRIVATE uint64_t ignis__comm_fingerprint(const ignis__comm_task *task, bool by_nccl)
{
    return (uint64_t)task->kind << 60 | (uint64_t)task->op << 56 | (uint64_t)task->dtype << 52 |
           (uint64_t)by_nccl << 51 | (uint64_t)(task->root & 7) << 48 |
           (uint64_t)(task->count & (((int64_t)1 << 40) - 1)) << 8;
}

static void ignis__comm_fingerprint_write(ignis__string_writer *text, uint64_t print)
{
    uint64_t kind = print >> 60, op = print >> 56 & 15, dtype = print >> 52 & 15;
    ignis__string_add(text, "%s", kind < IGNIS__COMM_KIND_COUNT ? ignis__comm_kinds[kind] : "something else");
    if (kind == IGNIS__COMM_ALL_REDUCE || kind == IGNIS__COMM_REDUCE || kind == IGNIS__COMM_REDUCE_SCATTER)
        ignis__string_add(text, " %s", op < IGNIS_OP_COUNT ? ignis__comm_ops[op] : "?");
    if (kind != IGNIS__COMM_BARRIER && dtype < IGNIS_DTYPE_COUNT)
        ignis__string_add(text, " of %llu %s", (unsigned long long)(print >> 8 & (((uint64_t)1 << 40) - 1)),
                          ignis__dtypes[dtype].name);
    if (kind == IGNIS__COMM_REDUCE || kind == IGNIS__COMM_BROADCAST)
        ignis__string_add(text, " (root %u)", (unsigned)(print >> 48 & 7));
    if (print >> 51 & 1)
        ignis__string_add(text, " by NCCL");
}

/*  Tells if one of two communicators is a group of the other, or both are groups of a third. */
static bool ignis__comm_are_related(const ignis__comm *a, const ignis__comm *b)
{
    return (a->outer ? a->outer : a) == (b->outer ? b->outer : b);
}

/*  Names another communicator that was used on the device at about the same time: each may have waited for
    blocks that the other one held. */
static void ignis__comm_other_write(ignis__string_writer *text, const ignis__comm *comm)
{
    uint64_t recent = ignis__atomic_load(&ignis__comm_last_used[comm->device - ignis__devices]);
    ignis__comm *other = (ignis__comm *)ignis__pool_hold(
        &ignis__comms, recent == comm->slot.handle ? ignis__atomic_load(&comm->beside) : recent);
    int64_t apart = other ? (int64_t)(ignis__atomic_load(&other->used_ns) - ignis__atomic_load(&comm->used_ns)) : 0;
    if (other && other != comm && !ignis__comm_are_related(comm, other) && apart < comm->options.timeout_ns &&
        apart > -comm->options.timeout_ns)
        ignis__string_add(
            text,
            "; communicator #%llu was used on device %d beside this one, #%llu: begin the operations of both in one "
            "order "
            "on all ranks, or give both fewer blocks (desc.most_blocks), so that they fit on the device together",
            (unsigned long long)other->slot.handle, ignis__device_ordinal(comm->device),
            (unsigned long long)comm->slot.handle);
    if (other)
        ignis__comm_drop("ignis_comm_status", other);
}

/*  Writes what a kernel of a communicator has found. False: it has found nothing. */
static bool ignis__comm_record_write(ignis__string_writer *text, const ignis__comm *comm)
{
    const ignis__comm_record *record = comm->memory->record;
    const uint64_t code = record ? ignis__atomic_load(&record->code) : 0;
    const int peer = code ? ignis__comm_outer_rank(comm, (int)record->peer) : -1;
    if (code == IGNIS__COMM_TIMEOUT)
        ignis__string_add(text, "rank %d did not come to operation %u within %.3g s, as rank %d reports", peer,
                          record->op, (double)comm->options.timeout_ns * 1e-9,
                          ignis__comm_outer_rank(comm, (int)record->reporter));
    else if (code == IGNIS__COMM_MISMATCH) {
        ignis__string_add(text, "ranks disagree about operation %u: rank %d calls ", record->op, peer);
        ignis__comm_fingerprint_write(text, record->theirs);
        ignis__string_add(text, ", rank %d calls ", ignis__comm_outer_rank(comm, comm->rank));
        ignis__comm_fingerprint_write(text, record->mine);
    } else if (code == IGNIS__COMM_TWICE)
        ignis__string_add(text, "rank %d ran two operations of one communicator at the same time, on two streams",
                          peer);
    else
        return false;
    return true;
}

/*  Fails with what broke a communicator, as `diagnostic`; with NONE, as the original one. A group's failure is that of
    its outer communicator. */
IGNIS__COLD IGNIS__PRIVATE ignis_status ignis__comm_fail(const char *call, const ignis__comm *comm,
                                                         ignis_diagnostic diagnostic)
{
    ignis__comm *group;
    char sentence[896];
    ignis__string_writer text;
    ignis_diagnostic what;
    bool is_found;
    int peer;
    ignis__comm_groups_settle((ignis__comm *)comm);
    comm = comm->outer ? comm->outer : comm;
    what = ignis__comm_failure(comm, &peer);
    group = ignis__comm_group_at_fault(comm);
    ignis__string_begin(&text, sentence, sizeof sentence);
    is_found = ignis__comm_record_write(&text, comm) || (group && ignis__comm_record_write(&text, group));
    if (group)
        ignis__comm_drop(call, group);
    if (is_found)
        ;
    else if (what == IGNIS_DIAG_NCCL_CALL) {
        int error = (int)(ignis__atomic_load(&comm->broken) >> 8 & 0xFFFFFF);
        const char *name = ignis__nccl.ncclGetErrorString(error);
        ignis__string_add(&text, "NCCL reports \"%s\" (%d) in a running operation", name ? name : "unknown error",
                          error);
    } else if (what == IGNIS_DIAG_COMM_TIMEOUT && peer >= 0)
        ignis__string_add(&text, "rank %d did not come to an operation within %.3g s", peer,
                          (double)comm->options.timeout_ns * 1e-9);
    else if (what == IGNIS_DIAG_COMM_TIMEOUT)
        ignis__string_add(&text, "an operation of NCCL did not end within %.3g s",
                          (double)comm->options.timeout_ns * 1e-9);
    else if (what == IGNIS_DIAG_COMM_MISMATCH && peer >= 0)
        ignis__string_add(&text, "rank %d has called another operation", peer);
    else if (peer >= 0)
        ignis__string_add(&text, "rank %d died or abandoned the communicator", peer);
    else
        ignis__string_add(&text, "the communicator was aborted");
    if (what == IGNIS_DIAG_COMM_TIMEOUT)
        ignis__comm_other_write(&text, comm);
    if (diagnostic == IGNIS_DIAG_NONE)
        return ignis__fail(what, call, "%s", sentence);
    return ignis__fail(diagnostic, call, "the communicator is broken: %s", sentence);
}

IGNIS__PRIVATE bool ignis__comm_check_works(const char *call, const ignis__comm *comm)
{
    int peer;
    if (ignis__comm_failure(comm, &peer) == IGNIS_DIAG_NONE)
        return true;
    ignis__comm_fail(call, comm, IGNIS_DIAG_COMM_BROKEN);
    return false;
}

/*  >>comm.launch - launching an operation

    Orders operations of a communicator across streams, and runs one by Ignis' kernels or by NCCL.
    Uses: algorithm.c, kernel.c, NCCL.
    Invariants: operations of a communicator run one after the other; a captured graph never joins NCCL.
    Locks: the caller holds the communicator's slot. */

/*  Tells if a stream still exists, as far as Ignis knows. */
IGNIS__PRIVATE bool ignis__comm_stream_exists(ignis__device *device, void *stream)
{
    ignis__user_stream *foreign;
    if (stream == device->stream)
        return true;
    ignis__mutex_lock(&device->lock);
    for (foreign = device->user_streams; foreign && foreign->stream != stream; foreign = foreign->next)
        ;
    ignis__mutex_unlock(&device->lock);
    return foreign != NULL;
}

/*  Makes the stream of an operation wait for the one before of `comm` and of its groups. */
static bool ignis__comm_wait_stream(const ignis__work *work, ignis__comm *comm)
{
    if (comm->stream && comm->stream != work->stream && ignis__comm_stream_exists(work->device, comm->stream) &&
        !ignis__stream_order(work->call, work->device, comm->stream, work->device, work->stream))
        return false;
    comm->stream = work->stream;
    return true;
}

/*  Orders operations of one communicator one after the other, on any streams. */
IGNIS__PRIVATE bool ignis__comm_wait_previous(const ignis__work *work, ignis__comm *comm)
{
    ignis__comm *outer = comm->outer;
    bool ok;
    ignis__capture *capture = ignis__capturing();
    uint64_t *recent = &ignis__comm_last_used[work->device - ignis__devices], before = ignis__atomic_load(recent);
    if (before != comm->slot.handle) {
        ignis__atomic_store(&comm->beside, before);
        ignis__atomic_store(recent, comm->slot.handle);
    }
    ignis__atomic_store(&comm->used_ns, (uint64_t)ignis__monotonic_ns());
    if (capture && capture->device == work->device) /* the device was idle at its beginning */
        return ignis__capture_hold_storage(work->call, capture, comm->storage);
    if (!outer)
        return ignis__comm_wait_stream(work, comm);
    ignis__mutex_lock(&outer->slot.lock);
    ok = ignis__comm_wait_stream(work, outer);
    ignis__mutex_unlock(&outer->slot.lock);
    return ok;
}

static bool ignis__comm_launch(const ignis__work *work, ignis__comm *comm, ignis__comm_program *program,
                               const ignis__comm_plan *plan, ignis__comm_call *to)
{
    unsigned grid[3] = {1, 1, 1}, block[3] = {1, 1, 1};
    void *params[1];
    params[0] = to;
    grid[0] = plan->blocks;
    block[0] = plan->threads;
    memcpy(to->region, comm->memory->regions->address, sizeof to->region);
    to->state = comm->memory->state->address;
    to->timeout_ns = comm->options.timeout_ns;
    to->rank = comm->rank;
    to->in_aligned = (to->in | (ignis__address)to->in_stride) % 16 == 0;
    to->out_aligned = (to->out | (ignis__address)to->out_stride) % 16 == 0;
    return ignis__launch_as(work, program->function[plan->kernel], grid, block, 0, params,
                            program->waits && plan->kernel <= IGNIS__COMM_KERNEL_PACKETS_TWO, false);
}

/*  Tells if NCCL does an operation faster, if it is joined. */
static bool ignis__comm_nccl_is_faster(const ignis__comm *comm, const ignis__comm_task *task)
{
    const ignis__comm_tune *tune = &comm->tune;
    int64_t bytes = task->count * ignis__dtypes[task->dtype].size, least = tune->nccl_min;
    int i;
    if (task->kind == IGNIS__COMM_BARRIER)
        return false;
    if (task->kind >= IGNIS__COMM_ALL_GATHER)
        bytes *= comm->size;
    if (least < 0 && (tune->ll_max >= 0 || tune->ll_two_max >= 0 || tune->one_shot_max >= 0))
        return false;
    for (i = 0; least < 0 && i < IGNIS__COUNT(ignis__comm_nccl_table); i++)
        if (ignis__comm_nccl_table[i].kind == task->kind && comm->size <= ignis__comm_nccl_table[i].most_ranks)
            least = ignis__comm_nccl_table[i].least_bytes;
    return least > 0 && bytes >= least;
}

/*  Marks the beginning and the end of an operation of NCCL for the host. */
static bool ignis__comm_mark(const ignis__work *work, ignis__comm *comm, bool begins)
{
    ignis__comm_program *program = ignis__comm_program_for(work->call, comm, -1, -1);
    ignis__comm_plan plan = {IGNIS__COMM_KERNEL_MARK, 1, 32};
    ignis__comm_call to;
    memset(&to, 0, sizeof to);
    to.steps = begins;
    return program && ignis__comm_launch(work, comm, program, &plan, &to);
}

/*  Runs one or two operations by NCCL. */
static bool ignis__comm_call_nccl(const ignis__work *work, ignis__comm *comm, const ignis__comm_task *tasks, int count)
{
    ignis__trace_item item;
    bool traced, ok, aborted;
    if (!ignis__comm_mark(work, comm, true))
        return false;
    traced = ignis__profiling() &&
             ignis__trace_open(&item, IGNIS__TRACED_COLLECTIVE, work->call, work->device, work->stream, NULL, "NCCL");
    ok = ignis__nccl_run(work->call, comm->memory->nccl, tasks, count, comm->size, work->stream, &aborted);
    if (traced)
        (void)ignis__trace_close(&item, ok);
    if (ok)
        return ignis__comm_mark(work, comm, false);
    if (aborted) /* since the checks of this call */
        ignis__comm_fail(work->call, comm, IGNIS_DIAG_COMM_BROKEN);
    /* NCCL breaks for good if it refuses a call, while the other ranks wait */
    ignis__comm_break_all(comm, IGNIS__COMM_PEER, comm->rank);
    return false;
}

/*  Runs one operation by NCCL. If there are built-in kernels, all ranks meet by them first: they notice ranks
    that do not come or call another operation. */
static bool ignis__comm_run_nccl(const ignis__work *work, ignis__comm *comm, const ignis__comm_task *task)
{
    ignis__comm_task sum = *task;
    if (ignis__comm_has_region(comm)) {
        ignis__comm_program *program = ignis__comm_program_for(work->call, comm, -1, -1);
        ignis__comm_plan plan = {IGNIS__COMM_KERNEL_PACKETS, 1, 64};
        ignis__comm_call to;
        memset(&to, 0, sizeof to);
        to.fingerprint = ignis__comm_fingerprint(task, true);
        if (!program || !ignis__comm_launch(work, comm, program, &plan, &to))
            return false;
    }
    if (task->kind == IGNIS__COMM_BARRIER) { /* a sum of one byte */
        sum.kind = IGNIS__COMM_ALL_REDUCE;
        sum.in = sum.out = comm->memory->state->address + offsetof(ignis__comm_state, byte);
        sum.count = 1;
    }
    return ignis__comm_call_nccl(work, comm, &sum, 1);
}

/*  Runs an operation by Ignis' kernels: which ranks each rank pushes to and takes from. */
IGNIS__PRIVATE bool ignis__comm_run(const ignis__work *work, ignis__comm *comm, const ignis__comm_task *task)
{
    const bool is_root = comm->rank == task->root;
    const bool combines = task->kind == IGNIS__COMM_ALL_REDUCE || task->kind == IGNIS__COMM_REDUCE ||
                          task->kind == IGNIS__COMM_REDUCE_SCATTER;
    ignis__comm_method way;
    int64_t part = task->count * ignis__dtypes[task->dtype].size;
    uint32_t me, root, others;
    ignis__comm_program *program;
    ignis__comm_plan plan;
    ignis__comm_call to;
    if (comm->job && comm->options.transport == IGNIS_COMM_TRANSPORT_DEFAULT &&
        ignis__comm_nccl_is_faster(comm, task)) { /* joining waits, which a capture cannot do on any rank */
        if (comm->nccl_state == IGNIS__COMM_NCCL_UNTRIED && !ignis__capturing() &&
            !ignis__comm_join_late(work->call, comm))
            return false;
        if (comm->nccl_state == IGNIS__COMM_NCCL_JOINED)
            return ignis__comm_run_nccl(work, comm, task);
    }
    if (!ignis__comm_has_region(comm))
        return ignis__comm_run_nccl(work, comm, task);
    way = ignis__comm_choose(comm, task);
    program =
        ignis__comm_program_for(work->call, comm, combines ? (int)task->dtype : -1, combines ? (int)task->op : -1);
    if (!program)
        return false;
    me = 1u << comm->rank; /* NCCL may have more ranks than bits */
    root = 1u << task->root;
    others = ((1u << comm->size) - 1) & ~me;
    memset(&to, 0, sizeof to);
    to.in = task->in;
    to.out = task->out;
    to.count = combines ? task->count : part;
    to.push = to.take = to.push_two = to.take_two = others;
    to.keep = 1;
    to.root = task->root;
    to.none = task->kind == IGNIS__COMM_REDUCE || task->kind == IGNIS__COMM_BROADCAST ? task->root : comm->size;
    switch (task->kind) {
    case IGNIS__COMM_ALL_GATHER: to.out_stride = part; break;
    case IGNIS__COMM_ALL_TO_ALL: to.out_stride = to.in_stride = part; break;
    case IGNIS__COMM_REDUCE_SCATTER: to.in_stride = part; break;
    case IGNIS__COMM_REDUCE:
        to.keep = is_root;
        to.push_two = root & ~me;
        to.take_two = to.take = is_root ? others : 0;
        if (way.algorithm != IGNIS__COMM_BY_SLICES)
            to.push = root & ~me;
        break;
    case IGNIS__COMM_BROADCAST:
        to.keep = way.algorithm == IGNIS__COMM_BY_SLICES && !is_root;
        to.push = is_root ? others : 0;
        to.take = root & ~me;
        to.push_two = others & ~root;
        to.take_two = is_root ? 0 : others;
        break;
    case IGNIS__COMM_BARRIER: to.push = to.take = 0; break;
    default: break;
    }
    plan = ignis__comm_plan_launch(comm, &way, part, &to);
    to.fingerprint = ignis__comm_fingerprint(task, false);
    return ignis__comm_launch(work, comm, program, &plan, &to);
}

/*  Runs a send, a receive or both, the send first. */
IGNIS__PRIVATE bool ignis__comm_run_pair(const ignis__work *work, ignis__comm *comm, const ignis__comm_task *tasks,
                                         int count)
{
    ignis__comm_program *program;
    ignis__comm_plan plan;
    ignis__comm_call to;
    int64_t most = comm->most_blocks / 2 < comm->tune.lanes ? comm->most_blocks / 2 : comm->tune.lanes;
    int i;
    if (!ignis__comm_has_region(comm))
        return ignis__comm_call_nccl(work, comm, tasks, count);
    program = ignis__comm_program_for(work->call, comm, -1, -1);
    if (!program)
        return false;
    memset(&to, 0, sizeof to);
    plan.kernel = IGNIS__COMM_KERNEL_PAIR;
    plan.blocks = 0;
    plan.threads = IGNIS__COMM_FLAG_THREADS;
    if (comm->tune.threads >= 0)
        plan.threads = (unsigned)ignis__clamp(comm->tune.threads / 32 * 32, 32, IGNIS__COMM_FLAG_THREADS);
    for (i = 0; i < count; i++) {
        ignis__comm_task same = tasks[i]; /* equal on both sides */
        int64_t bytes = same.count * ignis__dtypes[same.dtype].size;
        int lanes = (int)ignis__clamp(ignis__ceil_div(bytes, IGNIS__COMM_PAIR_SLOT), 1, most < 1 ? 1 : most);
        same.kind = IGNIS__COMM_SEND;
        same.root = 0;
        plan.blocks += (unsigned)lanes;
        if (tasks[i].kind == IGNIS__COMM_SEND) {
            to.push = 1u << tasks[i].root;
            to.in = tasks[i].in;
            to.in_stride = bytes;
            to.chunk = lanes;
            to.fingerprint = ignis__comm_fingerprint(&same, false);
        } else {
            to.take = 1u << tasks[i].root;
            to.out = tasks[i].out;
            to.out_stride = bytes;
            to.steps = lanes;
            to.fingerprint_in = ignis__comm_fingerprint(&same, false);
        }
    }
    return ignis__comm_launch(work, comm, program, &plan, &to);
}

/*  >>comm.window - windows: memory of each rank that copy engines of the others read

    A window has equal sizes on all ranks, which map each other's part. Gathering copies the others' slices without a
    kernel, so it takes no multiprocessor from computations. Nothing is synchronized: the caller orders copies after
    writes and writes after copies, by barriers.
    Uses: regions, votes, vmm blocks, storages.
    Invariants: a part lives until the last rank that maps it has freed its window; graphs hold windows by the storage.
    Locks: the regions' lock around what threads of one process offer each other. */

#ifndef IGNIS_NO_TENSORS

static void ignis__window_part_drop(const char *call, ignis__window_part *part)
{
    if (!part || ignis__atomic_add(&part->users, (uint64_t)-1) != 0)
        return;
    if (part->block.memory)
        ignis__vmm_block_destroy(call, &part->block);
    ignis__free(part);
}

static ignis__window_part *ignis__window_part_new(const char *call)
{
    ignis__window_part *part = (ignis__window_part *)ignis__alloc_for(call, sizeof *part);
    if (part)
        part->users = 1;
    return part;
}

static void ignis__window_free(const char *call, ignis__window *window)
{
    int i;
    if (!window)
        return;
    if (window->counted.device)
        ignis__memory_count_out(&window->counted);
    for (i = 0; i < IGNIS_COMM_MAX_RANKS; i++)
        ignis__window_part_drop(call, window->part[i]);
    ignis__free(window);
}

static void ignis__window_release(void *ptr, void *data)
{
    (void)ptr;
    ignis__window_free("ignis_array_free", (ignis__window *)data);
}

/*  Tells if the ranks of a communicator read each other's device memory. All ranks find the same. */
static bool ignis__comm_has_windows(const ignis__comm *comm)
{
    const ignis__comm_regions *regions = comm->memory->regions;
    return comm->size > 1 && !ignis__global.dry_run && regions->address[0] && regions->block[comm->rank].memory;
}

/* --- ranks that are threads of one process --- */

/*  Waits until all ranks have offered their part, and holds the parts. A rank without a window has failed: it tells
    the others, and does not wait. */
static bool ignis__window_exchange(const char *call, ignis__comm *comm, ignis__window *window)
{
    ignis__comm_regions *regions = comm->memory->regions;
    const uint64_t serial = ++comm->windows;
    const int64_t deadline = ignis__monotonic_ns() + comm->options.timeout_ns;
    ignis__window_offer *offers = regions->offers[serial % 2];
    int i, missing = 0, failed = -1;
    ignis__mutex_lock(&regions->lock);
    offers[comm->rank].part = window ? window->part[comm->rank] : NULL;
    offers[comm->rank].serial = serial;
    while (window) {
        for (i = 0; i < comm->size && offers[i].serial == serial; i++)
            ;
        missing = i;
        if (missing == comm->size || ignis__monotonic_ns() >= deadline)
            break;
        ignis__mutex_unlock(&regions->lock);
        if (!ignis__comm_check_works(call, comm))
            return false;
        ignis__sleep_us(50);
        ignis__mutex_lock(&regions->lock);
    }
    for (i = 0; missing == comm->size && i < comm->size; i++) {
        failed = offers[i].part || failed >= 0 ? failed : i;
        if (window->part[i] || !offers[i].part)
            continue;
        window->part[i] = offers[i].part;
        ignis__atomic_add(&offers[i].part->users, 1);
    }
    ignis__mutex_unlock(&regions->lock);
    if (!window)
        return true;
    if (missing < comm->size)
        return ignis__fail_false(IGNIS_DIAG_COMM_TIMEOUT, call, "rank %d did not share its memory within %.3g s",
                                 missing, (double)comm->options.timeout_ns * 1e-9);
    return failed < 0 || ignis__fail_false(IGNIS_DIAG_COMM_PEER, call, "rank %d could not share its memory", failed);
}

static bool ignis__window_share_in_process(const char *call, ignis__comm *comm, int64_t bytes, ignis__window *window)
{
    ignis__comm_regions *regions = comm->memory->regions;
    int devices[IGNIS_COMM_MAX_RANKS], i;
    bool made;
    for (i = 0; i < comm->size; i++)
        devices[i] = ignis__device_ordinal(regions->block[i].device);
    made =
        window && (window->part[comm->rank] || ((window->part[comm->rank] = ignis__window_part_new(call)) != NULL &&
                                                ignis__vmm_block_create(call, comm->device, bytes, devices, comm->size,
                                                                        false, &window->part[comm->rank]->block)));
    if (!made) {
        (void)ignis__window_exchange(call, comm, NULL);
        return false;
    }
    /* the second time after all ranks hold all parts: each may free its own from then on */
    if (ignis__window_exchange(call, comm, window) && ignis__window_exchange(call, comm, window))
        return true;
    ignis__mutex_lock(&regions->lock); /* ranks that come late find no part, which is about to be freed */
    regions->offers[0][comm->rank].part = regions->offers[1][comm->rank].part = NULL;
    ignis__mutex_unlock(&regions->lock);
    return false;
}

/* --- ranks that are processes --- */

/*  Exports this rank's part, which is made if the window has none. */
static bool ignis__window_create_part(ignis__comm_setup *setup, int64_t bytes, ignis__window *window, int *fd)
{
    ignis__comm *comm = setup->comm;
    ignis__window_part *part = window ? window->part[comm->rank] : NULL;
    ignis_vmm_handle handle;
    if (window && !part) {
        window->part[comm->rank] = part = ignis__window_part_new(setup->call);
        if (part && !ignis__vmm_block_create(setup->call, comm->device, bytes, NULL, 0, true, &part->block))
            return false;
    }
    if (!part || !ignis__physical_export(setup->call, part->block.memory, &handle))
        return false;
    setup->mine.bytes = part->block.size;
    *fd = ignis__vmm_handle_fd(&handle);
    return true;
}

static bool ignis__window_map_parts(ignis__comm_setup *setup, const int *fds, ignis__window *window)
{
    ignis__comm *comm = setup->comm;
    const int64_t size = window->part[comm->rank]->block.size;
    ignis_vmm_handle handle;
    int i;
    memset(&handle, 0, sizeof handle);
    for (i = 0; i < comm->size; i++) {
        if (i == comm->rank)
            continue;
        if (fds[i] < 0 || setup->all[i].bytes != size)
            return ignis__fail_false(IGNIS_DIAG_COMM_PEER, setup->call, "rank %d shares %lld bytes%s, this rank %lld",
                                     i, (long long)setup->all[i].bytes, fds[i] < 0 ? " without a descriptor" : "",
                                     (long long)size);
        window->part[i] = ignis__window_part_new(setup->call);
        ignis__vmm_handle_set_fd(&handle, fds[i]);
        if (!window->part[i] ||
            !ignis__vmm_block_import(setup->call, comm->device, &handle, size, &window->part[i]->block))
            return false;
    }
    return true;
}

static bool ignis__window_share_by_job(const char *call, ignis__comm *comm, int64_t bytes, ignis__window *window)
{
    int fds[IGNIS_COMM_MAX_RANKS], mine = -1, i;
    ignis__comm_setup setup;
    bool ok;
    if (!ignis__comm_setup_begin(call, comm, &setup))
        return false;
    for (i = 0; i < IGNIS_COMM_MAX_RANKS; i++)
        fds[i] = -1;
    ignis__agreement_begin(&setup.agreement, comm, IGNIS__AGREEMENT_WINDOW, (uint64_t)bytes);
    ignis__step_begin(&setup);
    (void)ignis__window_create_part(&setup, bytes, window, &mine);
    ok = ignis__step_end(&setup, mine, fds);
    ignis__fd_close(&mine);
    if (ok) {
        ignis__step_begin(&setup);
        (void)ignis__window_map_parts(&setup, fds, window);
        for (i = 0; i < comm->size; i++)
            ignis__fd_close(&fds[i]);
        ok = ignis__step_end(&setup, -1, NULL);
    }
    ignis__agreement_end(&setup.agreement, comm);
    if (!ok)
        ignis__comm_setup_report(&setup);
    ignis__free(setup.all);
    return ok;
}

/* --- arrays in windows --- */

/*  Makes an array of bytes, zeroed, on all ranks of a communicator, each of which then reads the others'; by all
    alike. If they cannot read each other's memory it is an ordinary array. Claimed. NULL, and reported, on failure. */
IGNIS__PRIVATE ignis__array *ignis__window_make(const char *call, ignis_comm handle, int64_t bytes, const char *tag)
{
    ignis__comm *comm = ignis__comm_hold(call, handle);
    ignis__window *window = NULL;
    ignis_array array = IGNIS__ZERO;
    ignis_array_desc desc;
    ignis__origin origin;
    if (!comm)
        return NULL;
    memset(&desc, 0, sizeof desc);
    desc.shape = IGNIS_SHAPE(bytes);
    desc.dtype = IGNIS_U8;
    desc.device = ignis__device_in_desc(comm->device);
    desc.tag = tag;
    if (!ignis__comm_has_windows(comm)) {
        array = ignis__array_create(call, &desc);
    } else {
        window = (ignis__window *)ignis__alloc_for(call, sizeof *window);
        if (comm->job ? ignis__window_share_by_job(call, comm, bytes, window)
                      : ignis__window_share_in_process(call, comm, bytes, window)) {
            array = ignis__vmm_wrap(call, comm->device, window->part[comm->rank]->block.address, &desc,
                                    ignis__window_release, window);
        }
        if (array.id) {
            ignis__origin_current(&origin, call);
            snprintf(origin.tag, sizeof origin.tag, "%s", tag);
            ignis__memory_count_in(comm->device, &window->counted, &origin, bytes);
        } else {
            ignis__window_free(call, window);
        }
    }
    if (array.id && ignis__array_set_zero(call, array) != IGNIS_OK)
        ignis__array_discard(call, &array);
    ignis__comm_drop(call, comm);
    return ignis__array_adopt(call, array);
}

/*  Tells if an array is in a window. */
IGNIS__PRIVATE bool ignis__window_has(const ignis__array *array)
{
    return array->storage->release_fn == ignis__window_release;
}

/*  Shares the memory of an array of ignis__window_make again, with the ranks of another communicator, of which this one
    has the same rank; by all alike, those that make their window included. Its content, address and views stay.
    Copies of the other ranks' parts must have ended. */
IGNIS__PRIVATE bool ignis__window_renew(const char *call, ignis_comm handle, const ignis__array *array)
{
    ignis__window *window = (ignis__window *)array->storage->release_data, *renewed = NULL;
    const bool had = ignis__window_has(array);
    ignis__comm *comm = ignis__comm_hold(call, handle);
    bool ok;
    int i;
    if (!comm)
        return false;
    ok = ignis__comm_has_windows(comm) == had ||
         ignis__fail_false(IGNIS_DIAG_UNSUPPORTED, call,
                           "the ranks %s each other's memory; expected ranks that %s, as those before",
                           had ? "do not reach" : "reach", had ? "do" : "do not");
    if (ok && had) {
        renewed = (ignis__window *)ignis__alloc_for(call, sizeof *renewed);
        if (renewed) {
            renewed->part[comm->rank] = window->part[comm->rank];
            ignis__atomic_add(&window->part[comm->rank]->users, 1);
        }
        ok = comm->job ? ignis__window_share_by_job(call, comm, array->numel, renewed)
                       : ignis__window_share_in_process(call, comm, array->numel, renewed);
        ok = ok && renewed;
        for (i = 0; ok && i < IGNIS_COMM_MAX_RANKS; i++) {
            ignis__window_part *before = window->part[i];
            window->part[i] = renewed->part[i];
            renewed->part[i] = before;
        }
        ignis__window_free(call, renewed);
    }
    ignis__comm_drop(call, comm);
    return ok;
}

/*  Copies the slices of all ranks, at the place of `slice` in their windows, to `whole`: on the current stream, by copy
    engines. Each rank begins with another one. */
IGNIS__PRIVATE bool ignis__window_gather(const char *call, ignis_comm handle, ignis__array *slice, ignis__array *whole)
{
    ignis__comm *comm = ignis__comm_hold(call, handle);
    const ignis__window *window = (const ignis__window *)slice->storage->release_data;
    const int64_t bytes = ignis__array_bytes(slice);
    ignis__address from, to = 0;
    ignis__work work;
    bool ok;
    int i;
    if (!comm)
        return false;
    ok = ignis__comm_check_works(call, comm) && ignis__work_begin(call, comm->device, &work);
    if (ok) {
        ok = ignis__work_read(&work, slice, &from) && ignis__work_write(&work, whole, &to);
        for (i = 1; ok && i <= comm->size; i++) {
            const int rank = (comm->rank + i) % comm->size;
            ok = ignis__copy_on_device(&work, to + (ignis__address)(rank * bytes),
                                       window->part[rank]->block.address + (ignis__address)slice->offset, bytes);
        }
        ignis__work_end(&work);
    }
    ignis__comm_drop(call, comm);
    return ok;
}
#endif /* IGNIS_NO_TENSORS */

/*  >>comm.operation - operations: checking arrays, public functions

    Borrows the arrays of a call, checks shapes, dtypes and overlap, and launches.
    Uses: launch.c, contracts of arrays.
    Invariants: arrays belong to IGNIS_OWNER_NVCCL while a call queues its work.
    Locks: the communicator's slot during a call. */

/*  Holds an array and borrows it for a call; the address of a local variable is the borrower. False, and
    reported, if that fails; ignis__comm_return undoes it in any case. */
static bool ignis__comm_borrow(const char *call, const ignis__comm *comm, ignis_array handle, const void *borrower,
                               ignis__array **held)
{
    ignis__array *array = *held = ignis__array_hold(call, handle);
    if (!array || ignis__array_refuses_address(call, array) ||
        !ignis__contract_borrow(call, array, IGNIS_OWNER_NVCCL, borrower))
        return false;
    if (array->storage->device == comm->device)
        return true;
    return ignis__fail_false(IGNIS_DIAG_DEVICE_DIFFERS, call,
                             "%s is on device %d; rank %d of the communicator is on device %d",
                             ignis__array_label(array).text, ignis__device_ordinal(array->storage->device), comm->rank,
                             ignis__device_ordinal(comm->device));
}

static void ignis__comm_return(const char *call, const void *borrower, ignis__array *held)
{
    if (!held)
        return;
    ignis__contract_return(held, borrower);
    ignis__array_drop(call, held);
}

/*  Checks the memory of input and output: the same, or one at its slice of the other, or without overlap. */
static bool ignis__comm_check_overlap(const char *call, const ignis__comm *comm, ignis__comm_kind kind,
                                      ignis__address in, int64_t in_bytes, ignis__address out, int64_t out_bytes)
{
    int64_t part = in_bytes < out_bytes ? in_bytes : out_bytes;
    if (in_bytes == 0 || out_bytes == 0 || in + (ignis__address)in_bytes <= out ||
        out + (ignis__address)out_bytes <= in)
        return true;
    if (in_bytes == out_bytes && in == out && kind != IGNIS__COMM_SEND)
        return true;
    if (kind == IGNIS__COMM_ALL_GATHER && in == out + (ignis__address)(part * comm->rank))
        return true;
    if (kind == IGNIS__COMM_REDUCE_SCATTER && out == in + (ignis__address)(part * comm->rank))
        return true;
    return ignis__fail_false(IGNIS_DIAG_COMM_OVERLAP, call,
                             "input 0x%llx (%lld bytes) and output 0x%llx (%lld bytes) overlap", in,
                             (long long)in_bytes, out, (long long)out_bytes);
}

static bool ignis__comm_rank_check(const char *call, const ignis__comm *comm, const char *name, int rank, bool not_self)
{
    if (rank >= 0 && rank < comm->size && !(not_self && rank == comm->rank))
        return true;
    return ignis__fail_false(IGNIS_DIAG_BAD_NUMBER, call, "%s is %d; expected another of the %d ranks, from 0%s", name,
                             rank, comm->size, not_self ? ", than this one" : "");
}

static bool ignis__comm_op_check(const char *call, ignis_op op, ignis_dtype dtype)
{
    if ((unsigned)op >= IGNIS_OP_COUNT)
        return ignis__fail_false(IGNIS_DIAG_BAD_ENUM, call, "op is %d; expected IGNIS_OP_SUM to _AVG, 0 to %d", (int)op,
                                 IGNIS_OP_COUNT - 1);
    if (op == IGNIS_OP_AVG && ignis__dtype_is_int(dtype))
        return ignis__fail_false(IGNIS_DIAG_UNSUPPORTED, call,
                                 "IGNIS_OP_AVG needs floating types, the arrays are %s; sum and divide them",
                                 ignis__dtypes[dtype].name);
    return true;
}

/*  Checks that in and out have the sizes of the operation; task->count becomes the elements of a slice. */
static bool ignis__comm_check_shapes(const char *call, const ignis__comm *comm, const ignis__array *in,
                                     const ignis__array *out, ignis__comm_task *task)
{
    const int64_t size = comm->size;
    const ignis__array *whole = in ? in : out;
    int64_t wanted = whole->numel;
    task->dtype = whole->dtype;
    task->count = whole->numel;
    if (in && out && in->dtype != out->dtype)
        return ignis__fail_false(IGNIS_DIAG_DTYPE_DIFFERS, call, "in is %s; out is %s", ignis__dtypes[in->dtype].name,
                                 ignis__dtypes[out->dtype].name);
    if (task->kind == IGNIS__COMM_ALL_GATHER)
        wanted = in->numel * size;
    if (task->kind == IGNIS__COMM_REDUCE_SCATTER || task->kind == IGNIS__COMM_ALL_TO_ALL) {
        if (in->numel % size != 0)
            return ignis__fail_false(IGNIS_DIAG_COUNT_MISMATCH, call,
                                     "in has %lld elements; expected a multiple of the %d ranks", (long long)in->numel,
                                     comm->size);
        task->count = in->numel / size;
        if (task->kind == IGNIS__COMM_REDUCE_SCATTER)
            wanted = task->count;
    }
    if (in && out && out->numel != wanted)
        return ignis__fail_false(IGNIS_DIAG_SHAPE_DIFFERS, call,
                                 "in has %lld elements, so out needs %lld on %d ranks; it has %lld",
                                 (long long)in->numel, (long long)wanted, comm->size, (long long)out->numel);
    return true;
}

/*  Copies: with one rank every operation is a copy. */
static bool ignis__comm_run_single_rank(const ignis__work *work, const ignis__comm_task *task)
{
    return ignis__copy_on_device(work, task->out, task->in,
                                 task->in && task->out ? task->count * ignis__dtypes[task->dtype].size : 0);
}

/*  Checks that the arrays fit an operation, and takes counts and types from them. */
static bool ignis__comm_check_arrays(const char *call, const ignis__comm *comm, const ignis__array *in,
                                     const ignis__array *out, ignis__comm_task *task, ignis__comm_task *receive)
{
    if (task->kind != IGNIS__COMM_SEND)
        return (!in && !out) || (ignis__comm_check_shapes(call, comm, in, out, task) &&
                                 ignis__comm_op_check(call, task->op, task->dtype));
    return (!in || ignis__comm_check_shapes(call, comm, in, task->root == comm->rank ? out : NULL, task)) &&
           (!out || ignis__comm_check_shapes(call, comm, NULL, out, receive));
}

/*  Runs one operation, from the handles on. in or out may be NULL where the operation has none on this rank.
    The root of a message is the rank that receives it. */
static ignis_status ignis__comm_operate(const char *call, ignis_comm handle, ignis__comm_kind kind,
                                        const ignis_array *in, const ignis_array *out, ignis_op op, int root,
                                        int source)
{
    const bool message = kind == IGNIS__COMM_SEND;
    ignis__comm *comm = ignis__comm_hold(call, handle);
    ignis__array *from = NULL, *to = NULL;
    ignis__comm_task task[2]; /* the operation or the send; the receive */
    ignis__work work;
    bool ok, self;
    if (!comm)
        return ignis__failed();
    self = message && in && out && root == comm->rank && source == comm->rank;
    memset(task, 0, sizeof task);
    task[0].kind = kind;
    task[0].op = op;
    task[0].root = root;
    task[1].kind = IGNIS__COMM_RECV;
    task[1].root = source;
    task[0].dtype = task[1].dtype = IGNIS_U8;
    ignis__mutex_lock(&comm->slot.lock);
    ok = ignis__comm_check_works(call, comm) &&
         ((message && !in) || ignis__comm_rank_check(call, comm, message ? "dest" : "root", root, message && !self)) &&
         (!message || !out || ignis__comm_rank_check(call, comm, "source", source, !self));
    if ((kind == IGNIS__COMM_REDUCE && comm->rank != root) || (kind == IGNIS__COMM_BROADCAST && comm->rank == root))
        out = NULL;
    else if (kind == IGNIS__COMM_BROADCAST)
        in = NULL;
    ok = ok && (!in || ignis__comm_borrow(call, comm, *in, &work, &from)) &&
         (!out || ignis__comm_borrow(call, comm, *out, &work, &to)) &&
         ignis__comm_check_arrays(call, comm, from, to, &task[0], &task[1]);
    if (ok && ignis__work_begin(call, comm->device, &work)) {
        ok = (!in || ignis__work_read(&work, from, &task[0].in)) &&
             (!out || ignis__work_address(&work, to, &task[0].out)) &&
             (!in || !out ||
              ignis__comm_check_overlap(call, comm, kind, task[0].in, ignis__array_bytes(from), task[0].out,
                                        ignis__array_bytes(to))) &&
             ignis__comm_wait_previous(&work, comm);
        if (ok && out)
            ignis__array_written(to);
        task[1].out = task[0].out;
        if (kind == IGNIS__COMM_BROADCAST)
            task[0].in = task[0].out = in ? task[0].in : task[0].out;
        if (ok && (comm->size == 1 || self))
            ok = ignis__comm_run_single_rank(&work, &task[0]);
        else if (ok && !ignis__global.dry_run)
            ok = message ? ignis__comm_run_pair(&work, comm, in ? task : task + 1, in && out ? 2 : 1)
                         : ignis__comm_run(&work, comm, task);
        ignis__work_end(&work);
    } else {
        ok = false;
    }
    ignis__mutex_unlock(&comm->slot.lock);
    ignis__comm_return(call, &work, to);
    ignis__comm_return(call, &work, from);
    ignis__comm_drop(call, comm);
    return ok ? IGNIS_OK : ignis__failed();
}

IGNIS_API ignis_status ignis_comm_all_reduce(ignis_comm comm, ignis_array in, ignis_array out, ignis_op op)
{
    return ignis__comm_operate("ignis_comm_all_reduce", comm, IGNIS__COMM_ALL_REDUCE, &in, &out, op, 0, 0);
}

IGNIS_API ignis_status ignis_comm_reduce(ignis_comm comm, ignis_array in, ignis_array out, ignis_op op, int root)
{
    return ignis__comm_operate("ignis_comm_reduce", comm, IGNIS__COMM_REDUCE, &in, &out, op, root, 0);
}

IGNIS_API ignis_status ignis_comm_broadcast(ignis_comm comm, ignis_array array, int root)
{
    return ignis__comm_operate("ignis_comm_broadcast", comm, IGNIS__COMM_BROADCAST, &array, &array, IGNIS_OP_SUM, root,
                               0);
}

IGNIS_API ignis_status ignis_comm_all_gather(ignis_comm comm, ignis_array in, ignis_array out)
{
    return ignis__comm_operate("ignis_comm_all_gather", comm, IGNIS__COMM_ALL_GATHER, &in, &out, IGNIS_OP_SUM, 0, 0);
}

IGNIS_API ignis_status ignis_comm_reduce_scatter(ignis_comm comm, ignis_array in, ignis_array out, ignis_op op)
{
    return ignis__comm_operate("ignis_comm_reduce_scatter", comm, IGNIS__COMM_REDUCE_SCATTER, &in, &out, op, 0, 0);
}

IGNIS_API ignis_status ignis_comm_all_to_all(ignis_comm comm, ignis_array in, ignis_array out)
{
    return ignis__comm_operate("ignis_comm_all_to_all", comm, IGNIS__COMM_ALL_TO_ALL, &in, &out, IGNIS_OP_SUM, 0, 0);
}

IGNIS_API ignis_status ignis_comm_barrier(ignis_comm comm)
{
    return ignis__comm_operate("ignis_comm_barrier", comm, IGNIS__COMM_BARRIER, NULL, NULL, IGNIS_OP_SUM, 0, 0);
}

IGNIS_API ignis_status ignis_comm_send(ignis_comm comm, ignis_array array, int dest)
{
    return ignis__comm_operate("ignis_comm_send", comm, IGNIS__COMM_SEND, &array, NULL, IGNIS_OP_SUM, dest, 0);
}

IGNIS_API ignis_status ignis_comm_recv(ignis_comm comm, ignis_array array, int source)
{
    return ignis__comm_operate("ignis_comm_recv", comm, IGNIS__COMM_SEND, NULL, &array, IGNIS_OP_SUM, 0, source);
}

IGNIS_API ignis_status ignis_comm_send_recv(ignis_comm comm, ignis_array in, int dest, ignis_array out, int source)
{
    return ignis__comm_operate("ignis_comm_send_recv", comm, IGNIS__COMM_SEND, &in, &out, IGNIS_OP_SUM, dest, source);
}

/*  Returns the status of a communicator for a call that only asks for it, and drops it. */
IGNIS__PRIVATE ignis_status ignis__comm_end_call(const char *call, ignis__comm *comm, bool ok)
{
    int peer;
    ignis_status status = IGNIS_OK;
    ignis__comm_groups_settle(comm);
    if (!ok)
        status = ignis__failed();
    else if (ignis__comm_failure(comm, &peer) != IGNIS_DIAG_NONE)
        status = ignis__comm_fail(call, comm, IGNIS_DIAG_NONE);
    ignis__comm_drop(call, comm);
    return status;
}

IGNIS_API ignis_status ignis_comm_status(ignis_comm handle)
{
    static const char call[] = "ignis_comm_status";
    ignis__comm *comm = ignis__comm_hold(call, handle);
    return comm ? ignis__comm_end_call(call, comm, true) : ignis__failed();
}

/*  >>comm.synchronize - waiting for the operations of a communicator

    Waits for the streams of a communicator and reports what broke it.
    Uses: communicators, NCCL's errors.
    Invariants: the wait is bounded by the deadlines of kernels and of ignis__comm_check_nccl_deadline.
    Locks: none while waiting. */

IGNIS_API ignis_status ignis_comm_synchronize(ignis_comm handle)
{
    static const char call[] = "ignis_comm_synchronize";
    ignis__comm *comm = ignis__comm_hold(call, handle);
    ignis__work work;
    void *last;
    bool ok;
    if (!comm)
        return ignis__failed();
    ok = !ignis__capture_refuses(call) && ignis__work_begin(call, comm->device, &work);
    /* bounded by the deadlines of kernels; for NCCL by ignis__comm_check_nccl_deadline, which asks it for
       errors meanwhile */
    if (ok) {
        ignis__mutex_lock(&comm->slot.lock);
        last = comm->stream && comm->stream != work.stream && ignis__comm_stream_exists(work.device, comm->stream)
                   ? comm->stream
                   : NULL;
        ignis__mutex_unlock(&comm->slot.lock);
        ok = !IGNIS__CUDA_FAILED(call, work.device, cuStreamSynchronize, (work.stream)) &&
             (!last || !IGNIS__CUDA_FAILED(call, work.device, cuStreamSynchronize, (last)));
        ignis__work_end(&work);
    }
    if (ok)
        ignis__comm_nccl_check(comm);
    return ignis__comm_end_call(call, comm, ok);
}

/*  >>comm.init_all - communicators of all GPUs of one process

    Init, split and shrink for all ranks in one call.
    Uses: comm.c, region.c.
    Invariants: communicators of a group share their regions, which are freed with the last of them.
    Locks: the regions' lock around the list of the group. */

static bool ignis__comm_devices_check(const char *call, const int *devices, int count)
{
    int i, k, can;
    if (count < 1 || count > IGNIS_COMM_MAX_RANKS || count > ignis__device_total)
        return ignis__fail_false(IGNIS_DIAG_BAD_NUMBER, call, "count is %d; expected 1 to %d: there are %d devices",
                                 count, IGNIS_COMM_MAX_RANKS, ignis__device_total);
    for (i = 0; i < count; i++) {
        if (!ignis__device_get(call, devices[i]))
            return false;
        for (k = 0; k < i; k++)
            if (devices[k] == devices[i])
                return ignis__fail_false(IGNIS_DIAG_BAD_NUMBER, call,
                                         "device %d is used by rank %d and rank %d; each rank needs its own",
                                         devices[i], k, i);
    }
    for (i = 0; i < count && ignis__cuda.cuDeviceCanAccessPeer; i++)
        for (k = 0; k < count; k++) {
            can = i == k;
            if (!can && IGNIS__CUDA_FAILED(call, NULL, cuDeviceCanAccessPeer, (&can, devices[i], devices[k])))
                return false;
            if (!can)
                return ignis__fail_false(
                    IGNIS_DIAG_TRANSPORT_UNAVAILABLE, call,
                    "device %d cannot reach the memory of device %d; start one process a device with ignis_comm_init",
                    devices[i], devices[k]);
        }
    return true;
}

/*  Creates the communicators of several devices, not published yet, with regions at the same address on all
    devices; none on failure. */
static bool ignis__comm_all_make(const char *call, const int *devices, int count, const ignis__comm_options *options,
                                 ignis__comm **comms)
{
    ignis__comm_regions *regions = ignis__comm_regions_new(call, NULL, count);
    int i, made = 0, most = IGNIS__COMM_BLOCKS;
    bool ok = regions != NULL;
    for (i = 0; ok && count > 1 && i < count; i++) {
        ok = ignis__vmm_block_create(call, &ignis__devices[devices[i]], ignis__comm_region_bytes(count), devices, count,
                                     false, &regions->block[i]);
        regions->address[i] = regions->block[i].address;
    }
    for (i = 0; ok && i < count; i++) {
        ignis__comm *comm = ignis__comm_new(call, &ignis__devices[devices[i]], i, count, options, regions);
        ok = comm != NULL;
        if (!ok)
            break;
        comms[made++] = regions->comms[i] = comm;
        snprintf(comm->reason, sizeof comm->reason, "all devices of one process");
        ok = ignis__comm_start(call, comm);
        if (ok && count > 1 && comm->most_blocks < most)
            most = comm->most_blocks;
    }
    for (i = 0; i < made; i++) {
        comms[i]->most_blocks = most;
        if (!ok)
            ignis__comm_end(call, comms[i]);
    }
    ignis__comm_regions_drop(call, regions);
    return ok;
}

IGNIS_API IGNIS__COLD ignis_status ignis_comm_init_all(ignis_comm *handles, const int *devices, int count,
                                                       const ignis_comm_desc *desc)
{
    static const char call[] = "ignis_comm_init_all";
    ignis__comm *comms[IGNIS_COMM_MAX_RANKS];
    int first[IGNIS_COMM_MAX_RANKS], i;
    ignis__comm_options options;
    ignis_comm_desc defaults;
    memset(&defaults, 0, sizeof defaults);
    if (!ignis__collective_enter(call) || !ignis__check_not_null(call, "comms", handles))
        return ignis__failed();
    for (i = 0; i < IGNIS_COMM_MAX_RANKS; i++)
        first[i] = i;
    devices = devices ? devices : first;
    if (count > 0 && count <= IGNIS_COMM_MAX_RANKS)
        memset(handles, 0, sizeof *handles * (size_t)count);
    if (ignis__capture_refuses(call) || !ignis__comm_options_read(call, desc ? desc : &defaults, &options) ||
        !ignis__comm_devices_check(call, devices, count) ||
        !ignis__comm_all_make(call, devices, count, &options, comms))
        return ignis__failed();
    for (i = 0; i < count; i++)
        handles[i].id = ignis__pool_publish(&ignis__comms, comms[i]);
    return IGNIS_OK;
}

/*  Communicators of one group in a call, held, at their place in the call; NULL: no handle. */
typedef struct ignis__comm_siblings {
    ignis__comm *comm[IGNIS_COMM_MAX_RANKS];
    ignis__comm *rank[IGNIS_COMM_MAX_RANKS]; /* by rank */
    int place[IGNIS_COMM_MAX_RANKS];         /* of a rank in the call */
    int size;                                /* of the group */
} ignis__comm_siblings;

static void ignis__comm_siblings_drop(const char *call, ignis__comm_siblings *siblings)
{
    int i;
    for (i = 0; i < IGNIS_COMM_MAX_RANKS; i++)
        if (siblings->comm[i])
            ignis__comm_drop(call, siblings->comm[i]);
}

/*  Holds the communicators of a call: all ranks of a group; with some_missing, those whose handle is not
    0. */
static bool ignis__comm_siblings_hold(const char *call, const ignis_comm *comms, int count, bool some_missing,
                                      ignis_comm *out, ignis__comm_siblings *siblings)
{
    ignis__comm *comm, *first = NULL;
    int i;
    bool ok = false;
    memset(siblings, 0, sizeof *siblings);
    if (!ignis__collective_enter(call) || ignis__capture_refuses(call) ||
        !ignis__check_not_null(call, "comms", comms) || !ignis__check_not_null(call, "out", out))
        return false;
    if (count < 1 || count > IGNIS_COMM_MAX_RANKS)
        return ignis__fail_false(IGNIS_DIAG_BAD_NUMBER, call, "count is %d; expected 1 to %d", count,
                                 IGNIS_COMM_MAX_RANKS);
    if (out == comms)
        return ignis__fail_false(IGNIS_DIAG_BAD_NUMBER, call,
                                 "out equals comms, whose handles are still needed; expected another array");
    memset(out, 0, sizeof *out * (size_t)count);
    for (i = 0; i < count; i++) {
        if (some_missing && !comms[i].id)
            continue;
        comm = siblings->comm[i] = ignis__comm_hold(call, comms[i]);
        if (!comm)
            break;
        first = first ? first : comm;
        siblings->size = first->size;
        if (comm->job) {
            ignis__fail(IGNIS_DIAG_UNSUPPORTED, call,
                        "comms[%d] is of ignis_comm_init; each of its ranks calls %.*s for itself", i,
                        (int)strlen(call) - 4, call);
            break;
        }
        if (comm->memory->regions != first->memory->regions || siblings->rank[comm->rank]) {
            ignis__fail(IGNIS_DIAG_BAD_NUMBER, call,
                        "comms[%d] is rank %d of %s; each has to be another rank of one group", i, comm->rank,
                        comm->memory->regions == first->memory->regions ? "them a second time" : "another group");
            break;
        }
        siblings->rank[comm->rank] = comm;
        siblings->place[comm->rank] = i;
    }
    if (i == count && !first)
        ignis__fail(IGNIS_DIAG_BAD_NUMBER, call, "all %d communicators are missing; expected one at least", count);
    else if (i == count && !some_missing && count != first->size)
        ignis__fail(IGNIS_DIAG_BAD_NUMBER, call, "count is %d; expected all %d ranks of the group", count, first->size);
    else
        ok = i == count;
    if (!ok)
        ignis__comm_siblings_drop(call, siblings);
    return ok;
}

/*  Lists the ranks of one color by their keys in `place`. Returns their number. */
IGNIS__PRIVATE int ignis__split_order(const ignis__split *all, int size, int color, int *place)
{
    int i, k, count = 0;
    for (i = 0; i < size; i++) {
        if (all[i].color != color)
            continue;
        for (k = count++; k > 0 && all[place[k - 1]].key > all[i].key; k--)
            place[k] = place[k - 1];
        place[k] = i;
    }
    return count;
}

IGNIS_API IGNIS__COLD ignis_status ignis_comm_split_all(const ignis_comm *comms, const int *colors, const int *keys,
                                                        int count, ignis_comm *out)
{
    static const char call[] = "ignis_comm_split_all";
    ignis__comm *made[IGNIS_COMM_MAX_RANKS] = {NULL}, *part[IGNIS_COMM_MAX_RANKS]; /* made: by rank */
    int devices[IGNIS_COMM_MAX_RANKS], order[IGNIS_COMM_MAX_RANKS], i, k, members;
    ignis__split all[IGNIS_COMM_MAX_RANKS];
    ignis__comm_siblings siblings;
    bool ok;
    if (!ignis__comm_siblings_hold(call, comms, count, false, out, &siblings))
        return ignis__failed();
    ok = ignis__check_not_null(call, "colors", colors);
    for (i = 0; i < count && ok; i++) {
        all[i].color = colors[siblings.place[i]];
        all[i].key = keys ? keys[siblings.place[i]] : 0;
    }
    for (i = 0; i < count && ok; i++) {
        if (all[i].color < 0 || made[i])
            continue;
        members = ignis__split_order(all, count, all[i].color, order);
        for (k = 0; k < members; k++)
            devices[k] = ignis__device_ordinal(siblings.rank[order[k]]->device);
        ok = ignis__comm_all_make(call, devices, members, &siblings.rank[i]->options, part);
        for (k = 0; k < members && ok; k++)
            made[order[k]] = part[k];
    }
    for (i = 0; i < count; i++)
        if (made[i] && ok)
            out[siblings.place[i]].id = ignis__pool_publish(&ignis__comms, made[i]);
        else if (made[i])
            ignis__comm_end(call, made[i]);
    ignis__comm_siblings_drop(call, &siblings);
    return ok ? IGNIS_OK : ignis__failed();
}

IGNIS_API IGNIS__COLD ignis_status ignis_comm_shrink_all(const ignis_comm *comms, int count, ignis_comm *out)
{
    static const char call[] = "ignis_comm_shrink_all";
    ignis__comm *made[IGNIS_COMM_MAX_RANKS];
    int devices[IGNIS_COMM_MAX_RANKS] = {0}, order[IGNIS_COMM_MAX_RANKS], members = 0, r, k;
    ignis__comm_siblings siblings;
    const ignis__comm_options *options = NULL;
    bool ok;
    if (!ignis__comm_siblings_hold(call, comms, count, true, out, &siblings))
        return ignis__failed();
    for (r = 0; r < siblings.size; r++) {
        if (!siblings.rank[r])
            continue;
        options = &siblings.rank[r]->options;
        devices[members] = ignis__device_ordinal(siblings.rank[r]->device);
        order[members++] = siblings.place[r];
    }
    ok = ignis__comm_all_make(call, devices, members, options, made);
    for (k = 0; k < members && ok; k++)
        out[order[k]].id = ignis__pool_publish(&ignis__comms, made[k]);
    ignis__comm_siblings_drop(call, &siblings);
    return ok ? IGNIS_OK : ignis__failed();
}

/*  >>comm.init_rank - init, split, shrink, destroy and query of one rank

    The public functions of communicators across processes.
    Uses: create.c, agreements, jobs.
    Invariants: a communicator keeps its job alive; a failed init leaves nothing behind.
    Locks: comm->agreement, through agreements. */

/*  Returns a random number of this process, so that ranks can tell whether they are threads of one. */
static uint64_t ignis__process_key(void)
{
    static ignis__mutex lock = IGNIS__MUTEX_INIT;
    static uint64_t key;
    ignis__mutex_lock(&lock);
    if (!key && !ignis__random_bytes(&key, sizeof key))
        key = 1;
    ignis__mutex_unlock(&lock);
    return key;
}

/*  Creates the communicator of a rank in a dry run, which is the only one there: it meets nobody. */
IGNIS__PRIVATE ignis_comm ignis__comm_make_dry(const char *call, int rank, int size, const ignis__comm_options *options)
{
    ignis_comm handle = {0};
    ignis__comm *comm = ignis__comm_new(call, ignis__device_get(call, 0), rank, size, options, NULL);
    if (!comm)
        return handle;
    comm->transport = IGNIS_COMM_PEER;
    snprintf(comm->reason, sizeof comm->reason, "a dry run sends nothing");
    if (ignis__comm_start(call, comm))
        handle.id = ignis__pool_publish(&ignis__comms, comm);
    else
        ignis__comm_end(call, comm);
    return handle;
}

/*  Meets the other ranks, which are at a place, and creates a communicator of all. device NULL: the failure was
    reported, and the others are told. origin: of the job that this rank comes from; 0: none. */
IGNIS__COLD static ignis_comm ignis__comm_meet(const char *call, ignis__device *device, const ignis__place *place,
                                               const ignis__comm_options *options, uint64_t origin)
{
    ignis_comm handle = {0};
    ignis__job_rank self;
    ignis__binding binding;
    ignis__comm *comm;
    ignis__job *job;
    const bool entered = device && ignis__device_enter(call, device, &binding);
    memset(&self, 0, sizeof self);
    self.host = ignis__job_host();
    self.process = ignis__process_key();
    if (entered) {
        memcpy(self.uuid, device->info.uuid, sizeof self.uuid);
        memcpy(self.pci, device->info.pci_bus_id, sizeof self.pci);
        self.driver = device->info.driver_version;
    } else {
        snprintf(self.failed, sizeof self.failed, "%.*s", (int)sizeof self.failed - 1, ignis_status_message());
        if (place->size == 1)
            return handle;
    }
    self.rank = place->rank;
    self.size = place->size;
    self.pid = (int32_t)ignis__process_id();
    self.transport = (int32_t)options->transport;
    self.heartbeat_ms = options->heartbeat_ms;
    self.origin = origin;
    job = ignis__job_meet(call, place, &self, options->timeout_ns);
    if (!entered) {
        ignis__job_drop(job);
        return handle;
    }
    if (job) {
        comm = ignis__comm_prepare(call, job, device, NULL, job->size, job->rank, job->key, options);
        if (comm)
            handle = ignis__comm_make(call, comm, NULL);
    }
    ignis__job_drop(job); /* held by the communicator now */
    ignis__device_leave(&binding);
    return handle;
}

IGNIS_API IGNIS__COLD ignis_comm ignis_comm_init(const ignis_comm_desc *desc)
{
    static const char call[] = "ignis_comm_init";
    ignis_comm_desc defaults;
    ignis__comm_options options;
    ignis_comm handle = {0};
    ignis__place place;
    int ordinal;
    memset(&defaults, 0, sizeof defaults);
    desc = desc ? desc : &defaults;
    if (!ignis__enter(call) || ignis__capture_refuses(call) || !ignis__comm_options_read(call, desc, &options) ||
        !ignis__place_read(call, desc, &place))
        return handle;
    if (ignis__global.dry_run)
        return ignis__comm_make_dry(call, place.rank, place.size, &options);
    ordinal = desc->device == 0 ? ignis__place_device(call, &place) : desc->device == IGNIS_DEVICE_0 ? 0 : desc->device;
    return ignis__comm_meet(call, ordinal < 0 ? NULL : ignis__device_get(call, ordinal), &place, &options, 0);
}

/*  Holds a communicator to derive others from; those of ignis_comm_init_all are split and shrunk together. */
static ignis__comm *ignis__comm_parent(const char *call, ignis_comm handle)
{
    ignis__comm *comm = ignis__comm_hold(call, handle);
    if (!comm || (comm->job && !ignis__capture_refuses(call)))
        return comm;
    if (!comm->job && ignis__global.dry_run)
        ignis__fail(IGNIS_DIAG_UNSUPPORTED, call, "a dry run has the communicator of ignis_comm_init alone");
    else if (!comm->job && strcmp(call, "ignis_comm_grow") == 0)
        ignis__fail(IGNIS_DIAG_UNSUPPORTED, call,
                    "the communicator is of ignis_comm_init_all, whose ranks are one process; none can join it");
    else if (!comm->job)
        ignis__fail(IGNIS_DIAG_UNSUPPORTED, call,
                    "the communicator is of ignis_comm_init_all; %s does it for all ranks at once",
                    strncmp(call, "ignis_comm_shrink", 17) == 0 ? "ignis_comm_shrink_all" : "ignis_comm_split_all");
    ignis__comm_drop(call, comm);
    return NULL;
}

/*  Creates a communicator of the ranks of `parent` in `place`, this one among them; with patience a group of it. `what`
    goes into its key. */
static ignis_comm ignis__comm_derive(const char *call, ignis__comm *parent, ignis__agreement *agreement,
                                     const int *place, int count, uint64_t what, int patience)
{
    int member[IGNIS__JOB_MAX_RANKS], me = 0, i;
    uint64_t key =
        ignis__hash(ignis__hash(agreement->key, &agreement->attempt, sizeof agreement->attempt), &what, sizeof what);
    ignis_comm none = {0};
    ignis__comm *comm;
    for (i = 0; i < count; i++) {
        member[i] = agreement->member[place[i]];
        if (place[i] == agreement->me)
            me = i;
    }
    comm = ignis__comm_prepare(call, parent->job, parent->device, member, count, me, key, &parent->options);
    if (comm && patience)
        ignis__comm_group_begin(parent, comm, patience);
    return comm ? ignis__comm_make(call, comm, agreement) : none;
}

/*  Checks that all ranks divide themselves into groups alike, as their keys tell. */
static bool ignis__split_check_groups(const char *call, const ignis__split *all, int size, int32_t key)
{
    int i = 0;
    while (i < size && all[i].key == key)
        i++;
    return i == size || ignis__fail_false(IGNIS_DIAG_COMM_MISMATCH, call,
                                          "groups of ranks have %d ranks on this rank and %d on rank %d", (int)key,
                                          (int)all[i].key, i);
}

/*  Does the work of ignis_comm_split, or makes groups (NULL: others), whose key is equal on all ranks. */
IGNIS__COLD IGNIS__PRIVATE ignis_comm ignis__comm_split(const char *call, ignis_comm handle, int color, int key,
                                                        const ignis__comm_group *group)
{
    ignis__comm *parent = ignis__comm_parent(call, handle);
    int place[IGNIS__JOB_MAX_RANKS];
    ignis_comm result = {0};
    ignis__split mine, *all;
    ignis__agreement agreement;
    if (!parent)
        return result;
    mine.color = color;
    mine.key = key;
    all = (ignis__split *)ignis__alloc_for(call, sizeof *all * (size_t)parent->size);
    ignis__agreement_begin(&agreement, parent, IGNIS__AGREEMENT_SPLIT, 0);
    do { /* the second step finds out who said it, but has given up meanwhile */
        if (all && (!ignis__agreement_step(&agreement, &mine, sizeof mine, all, -1, NULL) ||
                    !ignis__agreement_step(&agreement, &mine, 0, all, -1, NULL)))
            (void)(ignis__agreement_retry(&agreement) || ignis__agreement_failed(call, &agreement));
        else if (all && color >= 0 && (!group || ignis__split_check_groups(call, all, parent->size, key)))
            result =
                ignis__comm_derive(call, parent, &agreement, place, ignis__split_order(all, parent->size, color, place),
                                   (uint64_t)(uint32_t)color, group ? group->patience : 0);
    } while (all && !result.id && ignis__agreement_retry(&agreement));
    ignis__agreement_end(&agreement, parent);
    ignis__free(all);
    ignis__comm_drop(call, parent);
    return result;
}

IGNIS_API ignis_comm ignis_comm_split(ignis_comm comm, int color, int key)
{
    return ignis__comm_split("ignis_comm_split", comm, color, key, NULL);
}

/*  Agrees on the missing ranks: each rank tells which ranks it misses; `all` receives these lists. True: all
    lists are equal. False: a rank sent none, or *gone has grown. */
static bool ignis__shrink_agree(ignis__agreement *agreement, unsigned char *gone, unsigned char *all)
{
    size_t bytes = ((size_t)agreement->count + 7) / 8, b;
    bool same = true;
    int i;
    for (i = 0; i < agreement->count; i++)
        if (i != agreement->me && ignis__job_rank_is_absent(agreement->job, agreement->watch, agreement->member[i]))
            ignis__bit_set(gone, i);
    agreement->without = gone;
    if (!ignis__agreement_step(agreement, gone, bytes, all, -1, NULL))
        return false;
    for (i = 0; i < agreement->count; i++)
        same = same && (ignis__bit(gone, i) || memcmp(all + (size_t)i * bytes, gone, bytes) == 0);
    for (i = 0; !same && i < agreement->count; i++)
        for (b = 0; b < bytes && !ignis__bit(gone, i); b++)
            gone[b] = (unsigned char)(gone[b] | all[(size_t)i * bytes + b]);
    return same;
}

/*  Sets the bits of the ranks that a call excludes. */
static bool ignis__shrink_read_excluded(const char *call, const ignis__comm *parent, const int *ranks, int count,
                                        unsigned char *gone)
{
    int i;
    if (count < 0 || (count > 0 && !ranks))
        return ignis__fail_false(IGNIS_DIAG_BAD_NUMBER, call, "count is %d and ranks is %s; expected `count` ranks",
                                 count, ranks ? "not null" : "null");
    for (i = 0; i < count; i++) {
        if (ranks[i] < 0 || ranks[i] >= parent->size || ranks[i] == parent->rank)
            return ignis__fail_false(IGNIS_DIAG_BAD_NUMBER, call, "ranks[%d] is %d, %s", i, ranks[i],
                                     ranks[i] == parent->rank ? "which is this rank; expected others"
                                                              : "expected a rank of the communicator");
        ignis__bit_set(gone, ranks[i]);
    }
    return true;
}

/*  Agrees in attempts on the missing ranks, and creates the communicator of the others. A rank that dies
    meanwhile costs another attempt. */
IGNIS__COLD static ignis_comm ignis__comm_shrink(const char *call, ignis_comm handle, const int *ranks, int count)
{
    ignis__comm *parent = ignis__comm_parent(call, handle);
    unsigned char gone[IGNIS__JOB_MAX_RANKS / 8], *all = NULL;
    int place[IGNIS__JOB_MAX_RANKS], i, left;
    ignis_comm result = {0};
    ignis__agreement agreement;
    bool again = true;
    if (!parent)
        return result;
    memset(gone, 0, sizeof gone);
    if (ignis__shrink_read_excluded(call, parent, ranks, count, gone))
        all = (unsigned char *)ignis__alloc_for(call, (size_t)parent->size * sizeof gone);
    if (!all) {
        ignis__comm_drop(call, parent);
        return result;
    }
    ignis__agreement_begin(&agreement, parent, IGNIS__AGREEMENT_SHRINK,
                           ignis__hash(IGNIS__HASH_START, gone, sizeof gone));
    while (again) {
        if (ignis__shrink_agree(&agreement, gone, all)) {
            for (i = left = 0; i < parent->size; i++)
                if (!ignis__bit(gone, i))
                    place[left++] = i;
            result = ignis__comm_derive(call, parent, &agreement, place, left,
                                        ignis__hash(IGNIS__HASH_START, gone, sizeof gone), 0);
            again = !result.id && ignis__agreement_retry(&agreement);
        } else if (ignis__bit(gone, parent->rank)) {
            ignis__fail(IGNIS_DIAG_COMM_PEER, call, "the other ranks have excluded this one");
            again = false;
        } else if (agreement.failed && !ignis__agreement_retry(&agreement)) {
            again = ignis__agreement_failed(call, &agreement);
        }
        agreement.attempt += again && !agreement.overtaken;
    }
    ignis__agreement_end(&agreement, parent);
    ignis__free(all);
    ignis__comm_drop(call, parent);
    return result;
}

IGNIS_API ignis_comm ignis_comm_shrink(ignis_comm comm)
{
    return ignis__comm_shrink("ignis_comm_shrink", comm, NULL, 0);
}

IGNIS_API ignis_comm ignis_comm_shrink_without(ignis_comm comm, const int *ranks, int count)
{
    return ignis__comm_shrink("ignis_comm_shrink_without", comm, ranks, count);
}

/*  Finds where the ranks of a job meet those that join, and the options. */
static bool ignis__grow_read(const char *call, const ignis__comm *parent, const ignis_comm_desc *desc,
                             ignis__place *place, ignis__comm_options *options)
{
    const ignis__job *job = parent->job;
    ignis_comm_desc asked;
    ignis__comm_options read;
    memset(&asked, 0, sizeof asked);
    if (desc)
        asked = *desc;
    asked.rank = job->rank;
    asked.size = asked.size ? asked.size : job->size;
    if (asked.size <= job->rank)
        return ignis__fail_false(IGNIS_DIAG_BAD_NUMBER, call,
                                 "desc.size is %d and this rank %d; expected a size above it: ranks keep their numbers",
                                 asked.size, job->rank);
    if (!ignis__comm_options_read(call, &asked, &read))
        return false;
    *options = parent->options;
    if (asked.timeout_s != 0)
        options->timeout_ns = read.timeout_ns;
    if (asked.transport)
        options->transport = read.transport;
    if (asked.most_blocks)
        options->most_blocks = read.most_blocks;
    if (asked.heartbeat_s != 0)
        options->heartbeat_ms = read.heartbeat_ms;
    *place = job->place;
    if (job->place.by_id && !asked.id && !asked.rendezvous)
        return ignis__fail_false(IGNIS_DIAG_BAD_NUMBER, call,
                                 "desc.id is null; expected a new id of ignis_comm_unique_id, as the ranks met by one");
    if (asked.id || asked.rendezvous || asked.token || job->size == 1) {
        if (!ignis__place_read(call, &asked, place))
            return false;
    }
    place->size = asked.size;
    return true;
}

IGNIS_API IGNIS__COLD ignis_comm ignis_comm_grow(ignis_comm handle, const ignis_comm_desc *desc)
{
    static const char call[] = "ignis_comm_grow";
    ignis__comm *parent = ignis__comm_parent(call, handle);
    ignis__comm_options options;
    ignis__place place;
    ignis_comm result = {0};
    if (!parent)
        return result;
    if (ignis__grow_read(call, parent, desc, &place, &options))
        result = ignis__comm_meet(call, parent->device, &place, &options, parent->job->origin);
    ignis__comm_drop(call, parent);
    return result;
}

IGNIS_API ignis_status ignis_comm_abort(ignis_comm handle)
{
    static const char call[] = "ignis_comm_abort";
    ignis__comm *comm = ignis__comm_hold(call, handle);
    int code, peer = -1;
    if (!comm)
        return ignis__failed();
    ignis__comm_groups_settle(comm);
    code = comm->job ? ignis__comm_failure_code(comm, &peer) : 0;
    if (code) /* the others learn which rank broke it, and not this one */
        ignis__comm_break_told(comm, code, peer);
    else
        ignis__comm_break_all(comm, IGNIS__COMM_PEER, comm->rank);
    ignis__comm_drop(call, comm);
    return IGNIS_OK;
}

/*  Tells the other ranks that this one leaves a communicator. */
static void ignis__comm_say_goodbye(ignis__comm *comm)
{
    if (comm->job)
        ignis__job_send_all(comm->job, comm->member, comm->size, IGNIS__JOB_LEAVE, comm->watch.key);
}

#ifndef IGNIS_NO_TENSORS
/*  Leaves a group; no handle is allowed. */
IGNIS__PRIVATE void ignis__comm_leave(const char *call, ignis_comm handle)
{
    ignis__comm *comm = handle.id ? ignis__comm_hold(call, handle) : NULL;
    if (!comm)
        return;
    if (ignis__handle_kill(comm))
        ignis__comm_say_goodbye(comm);
    ignis__comm_drop(call, comm);
}
#endif /* IGNIS_NO_TENSORS */

IGNIS_API ignis_status ignis_comm_destroy(ignis_comm handle)
{
    static const char call[] = "ignis_comm_destroy";
    ignis__record before;
    ignis__comm *comm;
    ignis_status status;
    if (!handle.id)
        return IGNIS_OK;
    comm = ignis__comm_hold(call, handle);
    if (!comm)
        return ignis__failed();
    if (ignis__capture_refuses(call) ||
        !(ignis__handle_kill(comm) ||
          ignis__fail_false(IGNIS_DIAG_COMM_FREED, call, "another thread has destroyed the communicator"))) {
        ignis__comm_drop(call, comm);
        return ignis__failed();
    }
    ignis__comm_say_goodbye(comm);
    before = ignis__this_thread.record;
    memset(&ignis__this_thread.record, 0, sizeof before); /* to see the first failure of this call */
    ignis__comm_drop(call, comm);
    status = ignis__this_thread.record.status;
    if (before.status != IGNIS_OK) {
        ignis__record_drop(&ignis__this_thread);
        ignis__this_thread.record = before;
    }
    return status;
}

/*  Does the work of ignis_comm_query for another call. */
IGNIS__PRIVATE ignis_status ignis__comm_query(const char *call, ignis_comm handle, ignis_comm_info *info)
{
    ignis__comm *comm = ignis__check_not_null(call, "info", info) ? ignis__comm_hold(call, handle) : NULL;
    if (!comm)
        return ignis__failed();
    memset(info, 0, sizeof *info);
    info->rank = info->local_rank = comm->rank;
    info->size = info->local_size = comm->size;
    info->device = ignis__device_ordinal(comm->device);
    info->hosts = 1;
    info->transport = IGNIS_COMM_PEER;
    if (comm->job) {
        info->hosts = ignis__comm_hosts(comm, &info->local_rank, &info->local_size);
        info->transport = comm->transport;
    }
    if (ignis__atomic_load(&comm->nccl_told))
        snprintf(info->reason, sizeof info->reason, "%.60s; %.190s", comm->reason, comm->nccl_reason);
    else
        snprintf(info->reason, sizeof info->reason, "%s", comm->reason);
    ignis__comm_groups_settle(comm);
    info->status = ignis__diagnostics[ignis__comm_failure(comm, &info->failed_rank)].status;
    info->timeout_s = (double)comm->options.timeout_ns / 1e9;
    ignis__comm_drop(call, comm);
    return IGNIS_OK;
}

IGNIS_API ignis_status ignis_comm_query(ignis_comm handle, ignis_comm_info *info)
{
    return ignis__comm_query("ignis_comm_query", handle, info);
}

/*  collective/parallel - data-parallel training. */

#ifndef IGNIS_NO_TENSORS
/*  A bucket: gradients that are reduced together, views of one memory. */
typedef struct ignis__bucket {
    ignis__grad_group group; /* first */
    struct ignis__parallel_state *parallel;
    int first, last; /* parameters */
    /* Of the gradients; claimed. From IGNIS_SHARD_GRADIENTS on of this rank's slice of them, from an average until a
       step drops them; NULL: there are none. */
    ignis__array *memory;
    uint64_t memory_in; /* the serial of the capture that made it; 0: none */
    bool is_fresh;      /* nothing was written to it yet, while the bucket is reduced */
    ignis_dtype dtype;
    int64_t numel;        /* of the memory */
    ignis__array *values; /* with shards the parameters, in the same places; claimed */
    /* With IGNIS_SHARD_PARAMETERS: this rank's slice of the values, and all of them while they are gathered; claimed.
       parallel->gathering guards all but the slice. */
    ignis__array *slice, *whole;
    ignis__pooled_event *gathered; /* recorded after the gathering; NULL: there was none */
    void *ordered;                 /* the stream that has waited for it last; NULL: none */
    bool ready;                    /* complete in the backward pass that averages */
} ignis__bucket;

/*  The place of a rank among groups of ranks, each of which has a copy of what is shared. */
typedef struct ignis__parallel_place {
    int rank, ranks;   /* of the group */
    int group, copies; /* the group, of how many; each has a copy */
} ignis__parallel_place;

typedef struct ignis__parallel_state {
    ignis__slot slot; /* first; its lock guards no_sync and backward_pass */
    ignis_comm comm;
    ignis__device *device;
    void *stream; /* of the all-reduces, so that the backward pass goes on meanwhile */
    uint64_t stream_serial;
    ignis__tensor **parameters; /* held */
    ignis__array **grads;       /* views of the buckets, claimed until the parameters own them */
    ignis__array **values;      /* as grads, of the parameters; each NULL without shards */
    int64_t *places;            /* of the parameters in their buckets, in elements */
    ignis_shard shard;
    int shard_ranks; /* of ignis_parallel_desc */
    ignis__parallel_place place;
    ignis_comm inside, across; /* of the group, comm if it has all ranks; of one position in each group, or none */
    ignis__array *staging;     /* gradients that the ranks reduce now, if they share them; claimed; NULL: none */
    /* in the order in which the backward pass completes them, if parameters are in the order of use */
    ignis__bucket *buckets;
    int count, bucket_count;
    int64_t bytes;
    int no_sync;
    ignis__mutex gathering; /* guards what follows, and the gathered buckets */
    int current, before;    /* buckets in use: the last one, and the one before; -1: none */
    ignis__array *window;   /* the slices of all buckets, as bytes; claimed; NULL: of other kinds */
    int64_t window_end;     /* bytes of it that buckets have */
    /* Whether other ranks may be reading this rank's slices, and whether its slices have changed, since the ranks have
       met last; equal on all ranks. */
    bool is_read, is_written;
    uint64_t gathered_in; /* the serial of the capture that has gathered buckets; 0: none */
    bool broadcasts;      /* parameters become those of rank 0 */
    bool is_installed;    /* the parameters know their buckets */
    /* The backward pass that averages now; it alone changes what follows. NULL: none. */
    const void *backward_pass;
    /* Buckets whose all-reduce was launched: always the first ones, as ranks must have the same order. */
    int launched;
    struct ignis__parallel_state *next_starting;
} ignis__parallel_state;

/*  The current stream of a thread while its work goes to the second stream of a training. */
typedef struct ignis__second_stream {
    ignis__capture *capture;
    void *main_stream, *own;
    uint64_t own_serial;
} ignis__second_stream;

/*  How data moves between ranks, along the first dimension. */
typedef enum ignis__rank_move {
    IGNIS__MOVE_NONE,
    IGNIS__MOVE_ALL_REDUCE,
    IGNIS__MOVE_ALL_GATHER,
    IGNIS__MOVE_REDUCE_SCATTER,
    IGNIS__MOVE_SLICE /* to this rank's slice; nothing travels */
} ignis__rank_move;

/*  An operation that moves a tensor between ranks, and its gradient in backward. */
typedef struct ignis__rank_exchange {
    const char *call, *name;
    ignis__rank_move forward, backward;
} ignis__rank_exchange;

#define IGNIS__BUCKET_ALIGNMENT 256 /* bytes, of each gradient in a bucket, as for memory of its own */

#endif


/*  >>parallel.model - the interface of communicators for models, and for trainings, that several ranks share

    ignis_model_parallel and ignis_ranks have a group and functions; this part fills them for a communicator.
    Uses: the public functions of comm.
    Invariants: ignis.h does not know communicators; it calls back through this struct. */

static ignis_status ignis__comm_group_sum(uint64_t group, ignis_array array)
{
    ignis_comm comm = IGNIS__ZERO;
    comm.id = group;
    return ignis_comm_all_reduce(comm, array, array, IGNIS_OP_SUM);
}

static ignis_status ignis__comm_group_check(uint64_t group)
{
    ignis_comm comm = IGNIS__ZERO;
    comm.id = group;
    return ignis_comm_status(comm);
}

IGNIS_API ignis_model_parallel ignis_comm_parallel(ignis_comm handle)
{
    ignis_model_parallel parallel = IGNIS__ZERO;
    ignis_comm_info info;
    parallel.size = -1;
    if (ignis__comm_query("ignis_comm_parallel", handle, &info) != IGNIS_OK)
        return parallel;
    parallel.rank = info.rank;
    parallel.size = info.size;
    parallel.group = handle.id;
    parallel.sum_fn = ignis__comm_group_sum;
    parallel.check_fn = ignis__comm_group_check;
    return parallel;
}

#ifndef IGNIS_NO_TENSORS
static ignis_status ignis__comm_group_broadcast(uint64_t group, ignis_array array, int from)
{
    ignis_comm comm = IGNIS__ZERO;
    comm.id = group;
    return ignis_comm_broadcast(comm, array, from);
}

IGNIS_API ignis_ranks ignis_comm_ranks(ignis_comm handle)
{
    ignis_ranks ranks = IGNIS__ZERO;
    ignis_comm_info info;
    ranks.size = -1;
    if (ignis__comm_query("ignis_comm_ranks", handle, &info) != IGNIS_OK)
        return ranks;
    ranks.rank = info.rank;
    ranks.size = info.size;
    ranks.group = handle.id;
    ranks.sum_fn = ignis__comm_group_sum;
    ranks.broadcast_fn = ignis__comm_group_broadcast;
    return ranks;
}
#endif

/*  >>parallel.group - shards inside groups of ranks, copies between them (HSDP)

    A group of ranks divides a copy of the model; the ranks at one position of the groups have copies of one slice.
    Gradients are averaged inside the group, where each rank keeps a slice, and then slices are averaged across groups.
    Weights are gathered inside the group alone.
    Uses: groups of communicators, the job's hosts. Invariant: all ranks have the same number of ranks in a group. */

#ifndef IGNIS_NO_TENSORS

/*  Finds the place of this rank if the ranks of each host are a group. False, and reported, if hosts have different
    numbers of ranks. */
static bool ignis__parallel_place_on_host(const char *call, const ignis__comm *comm, ignis__parallel_place *place)
{
    const ignis__job_rank *ranks = comm->job->ranks;
    bool is_after = false; /* ranks of this host have come */
    int i, k, size, before;
    (void)ignis__comm_hosts(comm, &place->rank, &place->ranks);
    for (i = 0; i < comm->size; i++) {
        const uint64_t host = ranks[comm->member[i]].host;
        for (k = size = before = 0; k < comm->size; k++) {
            size += ranks[comm->member[k]].host == host;
            before += k < i && ranks[comm->member[k]].host == host;
        }
        is_after = is_after || host == ranks[comm->job->rank].host;
        place->group += before == 0 && !is_after; /* a host whose first rank is before that of this one */
        if (size != place->ranks)
            return ignis__fail_false(IGNIS_DIAG_BAD_NUMBER, call,
                                     "shard_ranks is IGNIS_SHARD_RANKS_HOST, and the hosts of ranks %d and %d have %d "
                                     "and %d ranks; expected hosts with equal numbers of ranks",
                                     comm->rank, i, place->ranks, size);
    }
    return true;
}

static bool ignis__parallel_place_check(const char *call, const ignis__comm *comm, const ignis_parallel_desc *desc)
{
    const int ranks = desc->shard_ranks;
    if (ranks && !desc->shard)
        return ignis__fail_false(IGNIS_DIAG_BAD_NUMBER, call,
                                 "shard_ranks is %d with IGNIS_SHARD_NONE; expected 0, or another shard", ranks);
    if (ranks == IGNIS_SHARD_RANKS_HOST && ignis__global.dry_run)
        return ignis__fail_false(IGNIS_DIAG_BAD_NUMBER, call,
                                 "shard_ranks is IGNIS_SHARD_RANKS_HOST in a dry run, which knows no hosts; expected "
                                 "the number of ranks");
    if (ranks != IGNIS_SHARD_RANKS_HOST && (ranks < 0 || (ranks && comm->size % ranks)))
        return ignis__fail_false(IGNIS_DIAG_BAD_NUMBER, call,
                                 "shard_ranks is %d; expected 0, IGNIS_SHARD_RANKS_HOST, or a divisor of the %d ranks",
                                 ranks, comm->size);
    if (ranks > 0 && ranks < comm->size && !comm->job && !ignis__global.dry_run)
        return ignis__fail_false(IGNIS_DIAG_UNSUPPORTED, call,
                                 "shard_ranks is %d of %d ranks of ignis_comm_init_all; expected a communicator of "
                                 "ignis_comm_init",
                                 ranks, comm->size);
    return true;
}

/*  Finds the place of this rank among the groups. False, and reported, if desc does not fit the ranks. */
IGNIS__PRIVATE bool ignis__parallel_place_find(const char *call, ignis_comm handle, const ignis_parallel_desc *desc,
                                               ignis__parallel_place *place)
{
    ignis__comm *comm = ignis__comm_hold(call, handle);
    const int ranks = desc ? desc->shard_ranks : 0;
    bool ok;
    if (!comm)
        return false;
    memset(place, 0, sizeof *place);
    place->ranks = ranks > 0 ? ranks : comm->size;
    place->rank = comm->rank;
    ok = !desc || ignis__parallel_place_check(call, comm, desc);
    if (ok && ranks == IGNIS_SHARD_RANKS_HOST && comm->job) {
        ok = ignis__parallel_place_on_host(call, comm, place);
    } else if (ok) {
        place->rank = comm->rank % place->ranks;
        place->group = comm->rank / place->ranks;
    }
    if (ok)
        place->copies = comm->size / place->ranks;
    ignis__comm_drop(call, comm);
    return ok;
}

/*  Makes the communicators of this rank's group, and of its position across groups. All ranks call it. An operation
    across groups may wait for a rank that waits inside its own: it has twice the deadline, so that the operation inside
    finds the rank that is missing. */
IGNIS__PRIVATE bool ignis__parallel_groups_make(const char *call, ignis__parallel_state *parallel)
{
    const ignis__parallel_place *place = &parallel->place;
    ignis__comm_group inside = IGNIS__ZERO, across = IGNIS__ZERO;
    if (place->copies == 1) {
        parallel->inside = parallel->comm;
        return true;
    }
    inside.color = place->group;
    inside.rank = place->rank;
    inside.size = place->ranks;
    inside.patience = 1;
    across.color = place->rank;
    across.rank = place->group;
    across.size = place->copies;
    across.patience = 2;
    inside.key = across.key = place->ranks;
    parallel->across = ignis__comm_group_make(call, parallel->comm, &across);
    if (!parallel->across.id)
        return false;
    parallel->inside = ignis__comm_group_make(call, parallel->comm, &inside);
    return parallel->inside.id != 0;
}

/*  Leaves the groups, as far as they were made. */
IGNIS__PRIVATE void ignis__parallel_groups_leave(const char *call, ignis__parallel_state *parallel)
{
    if (parallel->inside.id != parallel->comm.id)
        ignis__comm_leave(call, parallel->inside);
    ignis__comm_leave(call, parallel->across);
    parallel->inside.id = parallel->across.id = 0;
}

/*  Averages `whole` on the current stream: over the group into this rank's slice of it, which is then averaged across
    the groups. */
IGNIS__PRIVATE bool ignis__parallel_groups_average(const ignis__parallel_state *parallel, ignis_array whole,
                                                   ignis_array slice)
{
    return ignis_comm_reduce_scatter(parallel->inside, whole, slice, IGNIS_OP_AVG) == IGNIS_OK &&
           (!parallel->across.id || ignis_comm_all_reduce(parallel->across, slice, slice, IGNIS_OP_AVG) == IGNIS_OK);
}

#endif /* IGNIS_NO_TENSORS */

/*  >>parallel.gather - parameters of which each rank keeps a slice, gathered while operations use them

    The parameters of a bucket are views of a storage that is found at each use. The first use gathers the slices of
    all ranks on the second stream, and begins to gather the bucket that is used next. Three buckets at most are
    gathered: the one in use, the one before, for operations that alternate, and the next. Memory that an operation
    has found stays until the operation is queued.
    Slices are in a window of the ranks, if they reach each other's memory. Then a rank copies those of the others,
    which do nothing for it: the ranks meet before slices are written that others may read, and before slices are read
    that others may have written.
    Uses: communicators, windows, storages that are found. Invariant: which buckets are gathered depends on the order of
    uses alone, so all ranks gather alike.
    Locks: that of the storage, then parallel->gathering, then a communicator; device and storages below. */

#ifndef IGNIS_NO_TENSORS

/* Of data_parallel.c. */
IGNIS__PRIVATE bool ignis__parallel_enter_second(const char *call, ignis__parallel_state *parallel,
                                                 ignis__second_stream *second);
IGNIS__PRIVATE void ignis__parallel_leave_second(const ignis__parallel_state *parallel,
                                                 const ignis__second_stream *second);

/*  Returns the serial number of the capture on the device, or 0 outside a capture. */
IGNIS__PRIVATE uint64_t ignis__gather_capture(const ignis__parallel_state *parallel)
{
    const ignis__capture *capture = ignis__capture_on(parallel->device);
    return capture ? capture->serial : 0;
}

/*  Meets the other ranks on the current stream, if they may read the slices: writes may follow. */
static bool ignis__gather_meet_readers(const char *call, ignis__parallel_state *parallel)
{
    (void)call;
    if (parallel->is_read && ignis_comm_barrier(parallel->inside) != IGNIS_OK)
        return false;
    parallel->is_read = false;
    return true;
}

/*  Copies this rank's slice of the gathered parameters back: they were written by something else than a step. */
static bool ignis__gather_save(const char *call, const ignis__bucket *bucket)
{
    ignis__array *view;
    bool ok;
    if (!ignis__gather_meet_readers(call, bucket->parallel))
        return false;
    view =
        ignis__array_adopt(call, ignis__array_view(call, bucket->whole, &bucket->slice->shape, bucket->slice->numel,
                                                   bucket->parallel->place.rank * ignis__array_bytes(bucket->slice)));
    ok = view && ignis__array_copy_bytes(call, bucket->slice, 0, view);
    bucket->parallel->is_written = ignis__window_has(bucket->slice);
    if (view)
        ignis__array_unclaim(call, view);
    return ok;
}

/*  Frees the gathered parameters of a bucket. The current stream waits for a bucket that was not used: in a capture the
    memory has no stream that orders its next use, and graphs follow that stream alone. */
static bool ignis__gather_free(const char *call, ignis__bucket *bucket, bool saves)
{
    ignis__device *device = bucket->parallel->device;
    uint64_t *dirty = &bucket->values->storage->dirty;
    bool ok = !saves || !ignis__atomic_load(dirty) || ignis__gather_save(call, bucket);
    ignis__atomic_store(dirty, 0);
    if (saves && bucket->gathered && !bucket->ordered)
        ok = !IGNIS__CUDA_FAILED(call, device, cuStreamWaitEvent,
                                 (ignis__stream_current(device), bucket->gathered->event, 0)) &&
             ok;
    if (bucket->gathered)
        ignis__event_recycle(device, bucket->gathered);
    ignis__array_unclaim(call, bucket->whole);
    bucket->whole = NULL;
    bucket->gathered = NULL;
    bucket->ordered = NULL;
    return ok;
}

/*  Gathers slices on the current stream. */
static bool ignis__gather_slices(const char *call, ignis__bucket *bucket)
{
    ignis__parallel_state *parallel = bucket->parallel;
    ignis_array slice, whole;
    if (!ignis__window_has(bucket->slice)) {
        slice.id = bucket->slice->slot.handle;
        whole.id = bucket->whole->slot.handle;
        return ignis_comm_all_gather(parallel->inside, slice, whole) == IGNIS_OK;
    }
    if (parallel->is_written && ignis_comm_barrier(parallel->inside) != IGNIS_OK)
        return false;
    parallel->is_written = false;
    parallel->is_read = true;
    return ignis__window_gather(call, parallel->inside, bucket->slice, bucket->whole);
}

/*  Gathers a bucket on the second stream, after the work that the thread's stream has queued: after the step that
    wrote the slices, and the last use of the memory. */
static bool ignis__gather_start(const char *call, ignis__bucket *bucket)
{
    ignis__parallel_state *parallel = bucket->parallel;
    ignis__second_stream second;
    ignis_array_desc desc = IGNIS__ZERO;
    bool ok;
    desc.shape = bucket->values->shape;
    desc.dtype = bucket->values->dtype;
    desc.device = ignis__device_in_desc(parallel->device);
    desc.tag = "parameters";
    bucket->whole = ignis__array_adopt(call, ignis__array_create(call, &desc));
    if (!bucket->whole)
        return false;
    ignis__atomic_store(&bucket->values->storage->dirty, 0); /* a graph has written what is gathered now */
    ok = ignis__parallel_enter_second(call, parallel, &second);
    if (ok) {
        ok = ignis__gather_slices(call, bucket);
        bucket->gathered = ok ? ignis__event_record(call, parallel->device, parallel->stream) : NULL;
        ignis__parallel_leave_second(parallel, &second);
    }
    if (bucket->gathered)
        return true;
    (void)ignis__gather_free(call, bucket, false);
    return false;
}

/*  Frees all that is gathered. */
static bool ignis__gather_free_all(const char *call, ignis__parallel_state *parallel)
{
    bool ok = true;
    int i;
    for (i = 0; i < parallel->bucket_count; i++)
        if (parallel->buckets[i].whole)
            ok = ignis__gather_free(call, &parallel->buckets[i], true) && ok;
    parallel->current = parallel->before = -1;
    return ok;
}

/*  Notes that others may read and may have written, as at the beginning of a graph, and after a launch. */
static void ignis__gather_forget_meetings(ignis__parallel_state *parallel)
{
    parallel->is_read = parallel->is_written = parallel->window && ignis__window_has(parallel->window);
}

/*  Begins or leaves a capture: what was gathered outside is not gathered for each launch of a graph, and the memory of
    a graph is its own. */
static bool ignis__gather_enter(const char *call, ignis__parallel_state *parallel)
{
    const uint64_t serial = ignis__gather_capture(parallel);
    ignis__capture *capture;
    bool ok;
    if (serial == parallel->gathered_in)
        return true;
    if (parallel->gathered_in)
        return ignis__fail_false(IGNIS_DIAG_PARALLEL_BUSY, call,
                                 "another thread captures a graph with the parameters that ranks share");
    capture = ignis__capture_pause();
    ok = ignis__gather_free_all(call, parallel);
    ok = ignis__capture_resume(call, capture) && ok;
    parallel->gathered_in = serial;
    ignis__gather_forget_meetings(parallel); /* a graph is launched after any other work */
    return ok;
}

/*  Gathers bucket `at`, which is used from now on, if it is not gathered yet, and begins to gather the next one in the
    direction of uses: buckets are in the order of a backward pass, so a forward pass takes them from the last one. */
static bool ignis__gather_move(const char *call, ignis__parallel_state *parallel, int at)
{
    const bool ascends = parallel->current < 0 ? at == 0 : at > parallel->current;
    const int next = ascends ? at + 1 : at - 1, before = parallel->current;
    bool ok = true;
    int i;
    for (i = 0; ok && i < parallel->bucket_count; i++)
        if (parallel->buckets[i].whole && i != at && i != before && i != next)
            ok = ignis__gather_free(call, &parallel->buckets[i], true);
    parallel->before = before;
    parallel->current = at;
    ok = ok && (parallel->buckets[at].whole || ignis__gather_start(call, &parallel->buckets[at]));
    if (ok && next >= 0 && next < parallel->bucket_count && !parallel->buckets[next].whole)
        ok = ignis__gather_start(call, &parallel->buckets[next]);
    return ok;
}

static ignis__storage *ignis__gather_find(const char *call, void *finder, ignis__device *device, void *stream)
{
    ignis__bucket *bucket = (ignis__bucket *)finder;
    ignis__parallel_state *parallel = bucket->parallel;
    const int at = (int)(bucket - parallel->buckets);
    ignis__storage *found = NULL;
    bool ok;
    ignis__mutex_lock(&parallel->gathering);
    ok = ignis__gather_enter(call, parallel) &&
         ((parallel->current == at && bucket->whole) || ignis__gather_move(call, parallel, at));
    if (ok && device == parallel->device && stream != bucket->ordered) {
        ok = ignis__storage_use_after(call, bucket->whole->storage, stream, bucket->gathered->event);
        bucket->ordered = ok ? stream : bucket->ordered;
    }
    if (ok) {
        found = bucket->whole->storage;
        ignis__atomic_add(&found->users, 1);
    }
    ignis__mutex_unlock(&parallel->gathering);
    return found;
}

/*  Frees what is gathered, before pieces are used: slices then have what was written to the parameters. writes: and
    waits until no rank reads this one's. */
IGNIS__PRIVATE bool ignis__gather_settle(const char *call, ignis__parallel_state *parallel, bool writes)
{
    ignis__binding binding;
    bool ok = ignis__device_enter(call, parallel->device, &binding);
    if (!ok)
        return false;
    ignis__mutex_lock(&parallel->gathering);
    ok = ignis__gather_enter(call, parallel) && ignis__gather_free_all(call, parallel) &&
         (!writes || ignis__gather_meet_readers(call, parallel));
    ignis__mutex_unlock(&parallel->gathering);
    ignis__device_leave(&binding);
    return ok;
}

/*  Frees what is gathered in a capture that ends, or with NULL before a graph is launched, which may write the slices
    and whose collective operations follow those of this thread's stream. */
IGNIS__PRIVATE bool ignis__gather_close(const char *call, ignis__parallel_state *parallel,
                                        const ignis__capture *capture)
{
    bool ok = true;
    ignis__mutex_lock(&parallel->gathering);
    if (parallel->gathered_in == (capture ? capture->serial : 0)) {
        ok = ignis__gather_free_all(call, parallel);
        parallel->gathered_in = 0;
        ignis__gather_forget_meetings(parallel);
    }
    ignis__mutex_unlock(&parallel->gathering);
    return ok;
}

/*  Notes that a step has updated the slices of a bucket: its next use gathers them. */
IGNIS__PRIVATE bool ignis__gather_update(const char *call, ignis__bucket *bucket)
{
    ignis__storage *storage = bucket->values->storage;
    ignis__capture *capture = ignis__capture_on(storage->device);
    if (capture && !ignis__capture_hold_storage(call, capture, storage))
        return false;
    ignis__storage_written(storage);
    ignis__atomic_store(&storage->dirty, 0);
    bucket->parallel->is_written = ignis__window_has(bucket->slice);
    return true;
}

/*  Makes memory for the slices of all buckets. */
IGNIS__PRIVATE bool ignis__gather_open(const char *call, ignis__parallel_state *parallel, int64_t bytes)
{
    parallel->window = ignis__window_make(call, parallel->inside, bytes, "parameters");
    if (parallel->window)
        ignis__gather_forget_meetings(parallel);
    return parallel->window != NULL;
}

/*  Frees what is gathered, while no rank reads the slices any more: their communicator has failed. */
IGNIS__PRIVATE bool ignis__gather_stop(const char *call, ignis__parallel_state *parallel)
{
    ignis__mutex_lock(&parallel->gathering);
    parallel->is_read = false;
    ignis__mutex_unlock(&parallel->gathering);
    return ignis__gather_settle(call, parallel, false);
}

/*  Shares the memory for the slices with the ranks of a new group, and meets them as ranks do that make theirs: as
    ignis__gather_begin of the first bucket. */
IGNIS__PRIVATE bool ignis__gather_reopen(const char *call, ignis__parallel_state *parallel)
{
    bool ok;
    if (!ignis__window_renew(call, parallel->inside, parallel->window))
        return false;
    ignis__mutex_lock(&parallel->gathering);
    ignis__gather_forget_meetings(parallel);
    ok = ignis__gather_meet_readers(call, parallel);
    ignis__mutex_unlock(&parallel->gathering);
    return ok;
}

/*  Makes a view of the next `count` elements of that memory; claimed. */
static ignis__array *ignis__gather_slice(const char *call, ignis__parallel_state *parallel, ignis_dtype dtype,
                                         int64_t count)
{
    const ignis_shape shape = IGNIS_SHAPE(count);
    ignis__array *view = ignis__array_view_make(call, parallel->window, &shape, count, parallel->window_end);
    if (!view)
        return NULL;
    view->dtype = dtype;
    parallel->window_end += count * ignis__dtypes[dtype].size;
    return ignis__array_adopt(call, ignis__array_publish(view));
}

/*  Makes the slice and the storage of a bucket of `count` elements, and memory for the values that it begins with. */
IGNIS__PRIVATE bool ignis__gather_make(const char *call, ignis__bucket *bucket, ignis_dtype dtype, int64_t count)
{
    ignis__device *device = bucket->parallel->device;
    const ignis_shape shape = IGNIS_SHAPE(count);
    ignis__storage *storage = ignis__storage_make(call, device, count * ignis__dtypes[dtype].size);
    ignis__array *values = storage ? ignis__array_make(call, storage, &shape, dtype, count) : NULL;
    if (!values) {
        if (storage)
            ignis__storage_destroy(storage);
        return false;
    }
    storage->find_fn = ignis__gather_find;
    storage->finder = bucket;
    memcpy(values->tag, "parameters", sizeof "parameters");
    bucket->values = ignis__array_adopt(call, ignis__array_publish(values));
    bucket->slice = ignis__gather_slice(call, bucket->parallel, dtype, count / bucket->parallel->place.ranks);
    bucket->whole = ignis__array_adopt(call, ignis__array_zeroed(call, device, dtype, count, "parameters", false));
    return bucket->slice && bucket->whole;
}

/*  Makes rank 0's first values those of all ranks, and keeps this rank's slice of them. */
IGNIS__PRIVATE bool ignis__gather_begin(const char *call, ignis__bucket *bucket, bool broadcasts)
{
    ignis_array whole;
    whole.id = bucket->whole->slot.handle;
    ignis__atomic_store(&bucket->values->storage->dirty, 1);
    return (!broadcasts || ignis_comm_broadcast(bucket->parallel->comm, whole, 0) == IGNIS_OK) &&
           ignis__gather_free(call, bucket, true);
}

/*  Frees the parameters of a bucket; arrays of them that are left have no memory any more. */
IGNIS__PRIVATE void ignis__gather_end(const char *call, ignis__bucket *bucket)
{
    ignis__storage *storage = bucket->values->storage;
    ignis__mutex_lock(&storage->lock);
    storage->finder = NULL;
    ignis__mutex_unlock(&storage->lock);
    if (bucket->whole)
        (void)ignis__gather_free(call, bucket, false);
    if (bucket->slice)
        ignis__array_unclaim(call, bucket->slice);
}

#endif /* IGNIS_NO_TENSORS */

/*  >>parallel.shard - parameters whose optimizer state, and whose gradients, the ranks share

    The parameters of a bucket are in one memory, in the places of their gradients. Rank r updates slice r of a bucket:
    a piece of each parameter in it. After a step the ranks gather the slices. With IGNIS_SHARD_GRADIENTS a rank keeps
    the gradients of its slices alone: a backward pass makes gradients for the parameters of a bucket, which are copied
    to a staging buffer, reduced and scattered, and freed. With IGNIS_SHARD_PARAMETERS it keeps its slices of the
    parameters alone, too: gather.c.
    Uses: communicators, the tape's groups, the optimizers' size of a block.
    Invariant: a piece starts at a block of the optimizers, so that the sums of squares of blocks, and with them norms,
    have the same bits for every kind of shard. */

#ifndef IGNIS_NO_TENSORS

/* Of the part after this one. */
IGNIS__PRIVATE bool ignis__parallel_drop(const char *call, ignis__parallel_state *parallel);

/*  Returns the place of a parameter in a bucket that ends at *end, and moves *end to its end; both in bytes. */
IGNIS__PRIVATE int64_t ignis__shard_place(const ignis__parallel_state *parallel, const ignis__tensor *parameter,
                                          int64_t *end)
{
    const int64_t size = ignis__dtypes[parameter->dtype].size, numel = ignis__tensor_numel(parameter),
                  unit = parallel->shard ? IGNIS__OPTIM_CHUNK(numel) * size : IGNIS__BUCKET_ALIGNMENT,
                  at = ignis__ceil_div(*end, unit) * unit;
    *end = at + ignis__ceil_div(numel * size, IGNIS__BUCKET_ALIGNMENT) * IGNIS__BUCKET_ALIGNMENT;
    return at;
}

/*  Returns the size of a bucket whose parameters end at `end`: with shards all slices have equal sizes. */
IGNIS__PRIVATE int64_t ignis__shard_bucket_bytes(const ignis__parallel_state *parallel, ignis_dtype dtype, int64_t end)
{
    const int64_t unit = (int64_t)parallel->place.ranks * IGNIS__OPTIM_LARGEST_CHUNK * ignis__dtypes[dtype].size;
    return parallel->shard ? ignis__ceil_div(end, unit) * unit : end;
}

/*  Checks that no optimizer has the parameters yet, which would keep the state of all of them. */
IGNIS__PRIVATE bool ignis__shard_check(const char *call, const ignis__parallel_state *parallel)
{
    int i;
    for (i = 0; parallel->shard && i < parallel->count; i++)
        if (ignis__optimizers_have(parallel->parameters[i]))
            return ignis__fail_false(IGNIS_DIAG_PARAMETER_KIND, call,
                                     "parameter %d, %s, is a parameter of an optimizer; with shards, call "
                                     "ignis_optimizer_add after ignis_parallel_create",
                                     i, ignis__shape_write(&parallel->parameters[i]->shape).text);
    return true;
}

/*  Copies a parameter to its place in its bucket. */
IGNIS__PRIVATE bool ignis__shard_copy(const char *call, ignis__parallel_state *parallel, const ignis__bucket *bucket,
                                      int at)
{
    ignis__tensor *parameter = parallel->parameters[at];
    ignis__array *data = ignis__tensor_array(call, parameter), *to = bucket->whole ? bucket->whole : bucket->values;
    bool ok =
        data && (data->numel == 0 ||
                 ignis__array_copy_bytes(call, to, parallel->places[at] * ignis__dtypes[parameter->dtype].size, data));
    if (data)
        ignis__array_drop(call, data);
    return ok;
}

static ignis_array ignis__shard_handle(const ignis__array *array)
{
    ignis_array handle;
    handle.id = array->slot.handle;
    return handle;
}

/*  Broadcasts the parameters of rank 0, a bucket at a time. */
IGNIS__PRIVATE bool ignis__shard_broadcast(ignis__parallel_state *parallel)
{
    bool ok = true;
    int i;
    for (i = 0; ok && parallel->shard != IGNIS_SHARD_PARAMETERS && i < parallel->bucket_count; i++)
        ok = ignis_comm_broadcast(parallel->comm, ignis__shard_handle(parallel->buckets[i].values), 0) == IGNIS_OK;
    return ok;
}

/*  Finds the piece of a rank of a leaf that is `at` elements from the start of its bucket. */
static void ignis__shard_range(const ignis__bucket *bucket, int rank, int64_t at, int64_t numel, int64_t *start,
                               int64_t *count)
{
    const int64_t slice = bucket->values->numel / bucket->parallel->place.ranks, first = rank * slice - at,
                  end = first + slice < numel ? first + slice : numel;
    *start = first > 0 ? first : 0;
    *count = end > *start ? end - *start : 0;
    if (*count == 0)
        *start = 0;
}

/*  Finds a leaf of the training among its parameters. */
static int ignis__shard_find(const ignis__parallel_state *parallel, const ignis__tensor *leaf)
{
    int i = 0;
    while (parallel->parameters[i] != leaf)
        i++;
    return i;
}

static bool ignis__shard_piece(ignis__grad_group *group, const char *call, const ignis__tensor *leaf,
                               ignis__piece *piece)
{
    const ignis__bucket *bucket = (const ignis__bucket *)group;
    const ignis__parallel_state *parallel = bucket->parallel;
    const int64_t size = ignis__dtypes[leaf->dtype].size;
    const ignis__array *values = bucket->slice ? bucket->slice : bucket->values;
    ignis_shape shape;
    int64_t bytes, before;
    if (bucket->slice && !ignis__gather_settle(call, bucket->parallel, false))
        return false;
    piece->at = parallel->places[ignis__shard_find(parallel, leaf)];
    ignis__shard_range(bucket, parallel->place.rank, piece->at, ignis__tensor_numel(leaf), &piece->start,
                       &piece->count);
    piece->copy = parallel->place.group;
    piece->copies = parallel->place.copies;
    piece->rank = parallel->place.rank;
    shape = IGNIS_SHAPE(piece->count);
    bytes = (piece->at + piece->start) * size;
    before = bucket->slice ? parallel->place.rank * ignis__array_bytes(bucket->slice) : 0;
    piece->data = ignis__array_view(call, values, &shape, piece->count, piece->count ? bytes - before : 0);
    if (parallel->shard < IGNIS_SHARD_GRADIENTS)
        piece->grad = ignis__array_view(call, bucket->memory, &shape, piece->count, piece->count ? bytes : 0);
    return piece->data.id && (piece->grad.id || parallel->shard >= IGNIS_SHARD_GRADIENTS);
}

static bool ignis__shard_sum(ignis__grad_group *group, ignis_array array)
{
    return ignis_comm_all_reduce(((ignis__bucket *)group)->parallel->inside, array, array, IGNIS_OP_SUM) == IGNIS_OK;
}

/*  Broadcasts each piece of a leaf from its rank. */
static bool ignis__shard_fill(ignis__grad_group *group, const char *call, int64_t at, ignis_array leaf)
{
    const ignis__bucket *bucket = (const ignis__bucket *)group;
    const ignis__parallel_state *parallel = bucket->parallel;
    ignis__array *array = ignis__array_hold(call, leaf);
    int64_t start, count;
    bool ok = array != NULL;
    int rank;
    for (rank = 0; ok && rank < parallel->place.ranks; rank++) {
        ignis_shape shape;
        ignis_array view;
        ignis__shard_range(bucket, rank, at, array->numel, &start, &count);
        if (count == 0)
            continue;
        shape = IGNIS_SHAPE(count);
        view = ignis__array_view(call, array, &shape, count, start * ignis__dtypes[array->dtype].size);
        ok = view.id && ignis_comm_broadcast(parallel->inside, view, rank) == IGNIS_OK;
        if (view.id)
            ignis__array_discard(call, &view);
    }
    if (array)
        ignis__array_drop(call, array);
    return ok;
}

/*  Gathers the slices of all ranks. */
static bool ignis__shard_spread(ignis__grad_group *group, const char *call)
{
    const ignis__bucket *bucket = (const ignis__bucket *)group;
    const ignis__parallel_state *parallel = bucket->parallel;
    const int64_t slice = bucket->values->numel / parallel->place.ranks;
    ignis_array view = ignis_array_slice(ignis__shard_handle(bucket->values), 0, parallel->place.rank * slice, slice);
    bool ok = view.id && ignis_comm_all_gather(parallel->inside, view, ignis__shard_handle(bucket->values)) == IGNIS_OK;
    (void)call;
    if (view.id)
        (void)ignis_array_free(view);
    return ok;
}

/*  As ignis__shard_spread, where the next use gathers. */
static bool ignis__shard_update(ignis__grad_group *group, const char *call)
{
    return ignis__gather_update(call, (ignis__bucket *)group);
}

static bool ignis__shard_begin(ignis__grad_group *group, const char *call, bool writes)
{
    return ignis__gather_settle(call, ((ignis__bucket *)group)->parallel, writes);
}

static bool ignis__shard_drop(ignis__grad_group *group, const char *call)
{
    return ignis__parallel_drop(call, ((ignis__bucket *)group)->parallel);
}

/* --- gradients that the ranks share --- */

/*  Makes memory for the gradients of this rank's slice. */
static bool ignis__shard_take_memory(const char *call, ignis__bucket *bucket, bool zeroed)
{
    ignis__device *device = bucket->parallel->device;
    ignis_array_desc desc = IGNIS__ZERO;
    desc.shape = IGNIS_SHAPE(bucket->numel);
    desc.dtype = bucket->dtype;
    desc.device = ignis__device_in_desc(device);
    desc.tag = "gradients";
    bucket->memory = ignis__array_adopt(
        call, zeroed ? ignis__array_zeroed(call, device, bucket->dtype, bucket->numel, "gradients", false)
                     : ignis__array_create(call, &desc));
    bucket->memory_in = ignis__gather_capture(bucket->parallel);
    return bucket->memory != NULL;
}

static ignis_array ignis__shard_grad(ignis__grad_group *group, const char *call, int64_t at, int64_t start,
                                     int64_t count)
{
    ignis__bucket *bucket = (ignis__bucket *)group;
    const ignis_shape shape = IGNIS_SHAPE(count);
    const int64_t first = count ? at + start - bucket->parallel->place.rank * bucket->numel : 0;
    ignis_array none = IGNIS__ZERO;
    if (!bucket->memory && !ignis__shard_take_memory(call, bucket, true))
        return none;
    return ignis__array_view(call, bucket->memory, &shape, count, first * ignis__dtypes[bucket->dtype].size);
}

/*  Frees the gradients of this rank's slice. Sets them to zero instead if they were made before a capture, or in
    another one: a graph may use their memory. */
static bool ignis__shard_forget(ignis__grad_group *group, const char *call)
{
    ignis__bucket *bucket = (ignis__bucket *)group;
    if (bucket->memory && bucket->memory_in != ignis__gather_capture(bucket->parallel))
        return ignis__array_set_zero(call, ignis__shard_handle(bucket->memory)) == IGNIS_OK;
    if (bucket->memory)
        ignis__array_unclaim(call, bucket->memory);
    bucket->memory = NULL;
    return true;
}

/*  Sets this rank's piece of the gradient of a leaf to zero. */
static bool ignis__shard_zero(ignis__grad_group *group, const char *call, const ignis__tensor *leaf)
{
    const ignis__bucket *bucket = (const ignis__bucket *)group;
    const int64_t at = bucket->parallel->places[ignis__shard_find(bucket->parallel, leaf)];
    int64_t start, count;
    ignis_array grad;
    bool ok;
    ignis__shard_range(bucket, bucket->parallel->place.rank, at, ignis__tensor_numel(leaf), &start, &count);
    if (!bucket->memory || count == 0)
        return true;
    grad = ignis__shard_grad(group, call, at, start, count);
    ok = grad.id && ignis__array_set_zero(call, grad) == IGNIS_OK;
    if (grad.id)
        ignis__array_discard(call, &grad);
    return ok;
}

IGNIS__PRIVATE void ignis__shard_unstage(const char *call, ignis__parallel_state *parallel)
{
    if (parallel->staging)
        ignis__array_unclaim(call, parallel->staging);
    parallel->staging = NULL;
}

/*  Sets bytes of the staging buffer to zero. */
static bool ignis__shard_clear(const char *call, const ignis__parallel_state *parallel, int64_t from, int64_t to)
{
    ignis__address address;
    ignis__work work;
    bool ok;
    if (from >= to)
        return true;
    ok = ignis__work_begin(call, parallel->device, &work);
    if (ok) {
        ok = ignis__work_write(&work, parallel->staging, &address) &&
             ignis__copy_zeros(&work, address + (ignis__address)from, to - from);
        ignis__work_end(&work);
    }
    return ok;
}

/*  Moves the gradient of a held leaf to its place in the staging buffer, or zeros if it has none. Zeros are there from
    *end on, which is the end of the leaf before and becomes that of this one. */
static bool ignis__shard_stage_leaf(const char *call, const ignis__parallel_state *parallel, int at, int64_t *end)
{
    ignis__tensor *leaf = parallel->parameters[at];
    const int64_t size = ignis__dtypes[leaf->dtype].size, first = parallel->places[at] * size;
    ignis__array *grad;
    bool ok;
    ignis__leaf_enter(leaf);
    grad = leaf->grad;
    ok = ignis__shard_clear(call, parallel, *end, grad ? first : first + ignis__tensor_numel(leaf) * size) &&
         (!grad || grad->numel == 0 ||
          (ignis__gradient_wait(call, grad) && ignis__array_copy_bytes(call, parallel->staging, first, grad)));
    *end = first + ignis__tensor_numel(leaf) * size;
    if (ok && grad) {
        ignis__mutex_lock(&leaf->slot.lock);
        leaf->grad = NULL;
        ignis__mutex_unlock(&leaf->slot.lock);
    }
    ignis__leaf_leave(leaf);
    if (ok && grad)
        ignis__array_unclaim(call, grad);
    return ok;
}

/*  Moves the gradients of a bucket to the staging buffer, and takes memory for the average. The buffer of the bucket
    before is taken again, once that is reduced. */
IGNIS__PRIVATE bool ignis__shard_stage(const char *call, ignis__bucket *bucket)
{
    ignis__parallel_state *parallel = bucket->parallel;
    ignis_array_desc desc = IGNIS__ZERO;
    int64_t end = 0;
    bool ok;
    int i;
    if (parallel->staging && ignis__capture_on(parallel->device) && /* whose memory has no stream that orders it */
        !ignis__stream_order(call, parallel->device, parallel->stream, parallel->device,
                             ignis__stream_current(parallel->device)))
        return false;
    ignis__shard_unstage(call, parallel);
    desc.shape = IGNIS_SHAPE(bucket->values->numel);
    desc.dtype = bucket->dtype;
    desc.device = ignis__device_in_desc(parallel->device);
    desc.tag = "gradients";
    parallel->staging = ignis__array_adopt(call, ignis__array_create(call, &desc));
    ok = parallel->staging != NULL;
    for (i = bucket->last; ok && i >= bucket->first; i--) /* in the order of their places */
        ok = ignis__shard_stage_leaf(call, parallel, i, &end);
    ok = ok && ignis__shard_clear(call, parallel, end, ignis__array_bytes(parallel->staging));
    bucket->is_fresh = !bucket->memory;
    return ok && (!bucket->is_fresh || ignis__shard_take_memory(call, bucket, false));
}

/*  Reduces the staging buffer to the gradients, or adds this rank's slice of it to those that there are. */
IGNIS__PRIVATE bool ignis__shard_scatter(const char *call, const ignis__bucket *bucket)
{
    const ignis__parallel_state *parallel = bucket->parallel;
    const ignis_array staging = ignis__shard_handle(parallel->staging);
    ignis_array memory, slice;
    bool ok;
    memory = ignis__shard_handle(bucket->memory);
    if (bucket->is_fresh)
        return ignis__parallel_groups_average(parallel, staging, memory);
    slice = ignis__array_view(call, parallel->staging, &bucket->memory->shape, bucket->memory->numel,
                              parallel->place.rank * ignis__array_bytes(bucket->memory));
    ok = slice.id && ignis__parallel_groups_average(parallel, staging, slice) &&
         ignis__array_binary(call, IGNIS__BUILTIN(ADD), memory, memory, slice) == IGNIS_OK;
    if (slice.id)
        ignis__array_discard(call, &slice);
    return ok;
}

/*  Averages the gradients of a bucket, which each rank keeps, over groups and across them. */
IGNIS__PRIVATE bool ignis__shard_average(const char *call, const ignis__bucket *bucket)
{
    const ignis__parallel_state *parallel = bucket->parallel;
    const int64_t count = bucket->memory->numel / parallel->place.ranks;
    const ignis_array memory = ignis__shard_handle(bucket->memory);
    const ignis_shape shape = IGNIS_SHAPE(count);
    ignis_array slice = ignis__array_view(call, bucket->memory, &shape, count,
                                          parallel->place.rank * count * ignis__dtypes[bucket->dtype].size);
    bool ok = slice.id && ignis__parallel_groups_average(parallel, memory, slice) &&
              ignis_comm_all_gather(parallel->inside, slice, memory) == IGNIS_OK;
    if (slice.id)
        ignis__array_discard(call, &slice);
    return ok;
}

/* --- ranks that come back --- */

static bool ignis__shard_send_copy(ignis__grad_group *group, ignis_array array, int from)
{
    const ignis__parallel_state *parallel = ((ignis__bucket *)group)->parallel;
    return parallel->place.copies == 1 || ignis_comm_broadcast(parallel->across, array, from) == IGNIS_OK;
}

static bool ignis__shard_renew(ignis__grad_group *group, const char *call)
{
    ignis__parallel_state *parallel = ((ignis__bucket *)group)->parallel;
    bool ok = true;
    int i;
    for (i = 0; ok && i < parallel->bucket_count; i++) {
        ignis__grad_group *other = &parallel->buckets[i].group;
        ok = other->sharing->spread_fn(other, call) &&
             (!other->sharing->forget_fn || other->sharing->forget_fn(other, call));
    }
    return ok;
}

static bool ignis__shard_wait(ignis__grad_group *group)
{
    return ignis_comm_synchronize(((ignis__bucket *)group)->parallel->comm) == IGNIS_OK;
}

/*  By ignis_shard. */
IGNIS__PRIVATE const ignis__sharing ignis__shard_sharings[IGNIS_SHARD_COUNT] = {
    {NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL},
    {ignis__shard_piece, ignis__shard_sum, ignis__shard_fill, ignis__shard_spread, ignis__shard_drop, NULL, NULL, NULL,
     NULL, ignis__shard_send_copy, ignis__shard_renew, ignis__shard_wait},
    {ignis__shard_piece, ignis__shard_sum, ignis__shard_fill, ignis__shard_spread, ignis__shard_drop, NULL,
     ignis__shard_zero, ignis__shard_grad, ignis__shard_forget, ignis__shard_send_copy, ignis__shard_renew,
     ignis__shard_wait},
    {ignis__shard_piece, ignis__shard_sum, ignis__shard_fill, ignis__shard_update, ignis__shard_drop,
     ignis__shard_begin, ignis__shard_zero, ignis__shard_grad, ignis__shard_forget, ignis__shard_send_copy,
     ignis__shard_renew, ignis__shard_wait}};

#endif /* IGNIS_NO_TENSORS */

/*  >>parallel - data-parallel training: gradients averaged over ranks during the backward pass

    Gradients of neighbouring parameters share a bucket. A bucket is all-reduced on its own stream as soon as its
    gradients are complete, while the backward pass goes on.
    Uses: communicators, the tape's groups of gradients.
    Invariants: all ranks reduce buckets in the same order; one backward pass at a time averages.
    Locks: the slot's lock around no_sync and backward_pass; ignis__parallels_starting.lock around claims. */

#ifndef IGNIS_NO_TENSORS

static ignis__pool ignis__parallels =
    IGNIS__POOL(ignis__parallel_state, IGNIS__KIND_PARALLEL, "data-parallel", IGNIS_DIAG_PARALLEL_FREED);

/*  Handles under construction, whose parameters are claimed. */
static struct {
    ignis__mutex lock;
    ignis__parallel_state *first;
} ignis__parallels_starting = {IGNIS__MUTEX_INIT, NULL};

IGNIS__PRIVATE ignis__parallel_state *ignis__parallel_hold(const char *call, ignis_parallel handle)
{
    return (ignis__parallel_state *)ignis__handle_hold(call, &ignis__parallels, handle.id);
}

/*  Ends the claim on parameters: they belong to the handle now, or are free. */
static void ignis__parallel_end_claim(const ignis__parallel_state *parallel)
{
    ignis__parallel_state **at;
    ignis__mutex_lock(&ignis__parallels_starting.lock);
    for (at = &ignis__parallels_starting.first; *at && *at != parallel; at = &(*at)->next_starting)
        ;
    if (*at)
        *at = parallel->next_starting;
    ignis__mutex_unlock(&ignis__parallels_starting.lock);
}

/*  Destroys a handle, as far as it was made. */
IGNIS__COLD static bool ignis__parallel_end(const char *call, ignis__parallel_state *parallel)
{
    ignis__binding binding;
    bool ok = true;
    int i;
    ignis__parallel_end_claim(parallel);
    ignis__shard_unstage(call, parallel);
    for (i = 0; i < parallel->bucket_count; i++)
        if (parallel->shard == IGNIS_SHARD_PARAMETERS && parallel->buckets[i].values)
            ignis__gather_end(call, &parallel->buckets[i]);
    for (i = 0; i < parallel->count; i++) {
        ignis__tensor *parameter = parallel->parameters[i];
        if (parallel->is_installed) {
            ignis__mutex_lock(&parameter->slot.lock);
            parameter->group = NULL;
            ignis__mutex_unlock(&parameter->slot.lock);
        } else {
            if (parallel->grads[i])
                ignis__array_unclaim(call, parallel->grads[i]);
            if (parallel->values[i])
                ignis__array_unclaim(call, parallel->values[i]);
        }
        ignis__tensor_drop(call, parameter);
    }
    if (parallel->is_installed)
        ignis__atomic_add(&ignis__grad_groups, (uint64_t)-parallel->bucket_count);
    if (parallel->stream && !ignis__devices_lost()) {
        ok = ignis_stream_forget(parallel->stream) == IGNIS_OK; /* waits for the stream */
        if (ignis__device_enter(call, parallel->device, &binding)) {
            ok = !IGNIS__CUDA_FAILED(call, parallel->device, cuStreamDestroy_v2, (parallel->stream)) && ok;
            ignis__device_leave(&binding);
        }
    }
    ignis__parallel_groups_leave(call, parallel);
    for (i = 0; i < parallel->bucket_count; i++) {
        if (parallel->buckets[i].memory)
            ignis__array_unclaim(call, parallel->buckets[i].memory);
        if (parallel->buckets[i].values)
            ignis__array_unclaim(call, parallel->buckets[i].values);
    }
    if (parallel->window)
        ignis__array_unclaim(call, parallel->window);
    ignis__free(parallel->parameters);
    ignis__free(parallel->grads);
    ignis__free(parallel->values);
    ignis__free(parallel->places);
    ignis__free(parallel->buckets);
    ignis__pool_recycle(&ignis__parallels, parallel);
    return ok;
}

IGNIS__PRIVATE bool ignis__parallel_drop(const char *call, ignis__parallel_state *parallel)
{
    return !ignis__pool_drop(parallel) || ignis__parallel_end(call, parallel);
}

IGNIS__COLD static void ignis__parallels_close(const char *call)
{
    ignis__parallel_state *parallel;
    uint64_t index = 0;
    while ((parallel = (ignis__parallel_state *)ignis__pool_next(&ignis__parallels, &index)) != NULL) {
        ignis__leak_report(call, IGNIS_DIAG_HANDLE_LEAKED, "data-parallel training of %d parameters on device %d",
                           parallel->count, ignis__device_ordinal(parallel->device));
        ignis__handle_kill(parallel);
        (void)ignis__parallel_drop(call, parallel);
    }
}

static bool ignis__parallels_settle(const char *call, ignis__device *device, const ignis__capture *capture)
{
    ignis__parallel_state *parallel;
    uint64_t index = 0;
    bool ok = true;
    while ((parallel = (ignis__parallel_state *)ignis__pool_next(&ignis__parallels, &index)) != NULL) {
        ok = (parallel->device != device || ignis__gather_close(call, parallel, capture)) && ok;
        ok = ignis__parallel_drop(call, parallel) && ok;
    }
    return ok;
}

/* --- during a backward pass --- */

/*  Averages a bucket on the current stream. */
static bool ignis__bucket_average(const char *call, const ignis__bucket *bucket)
{
    const ignis__parallel_state *parallel = bucket->parallel;
    ignis_array gradients;
    if (parallel->shard >= IGNIS_SHARD_GRADIENTS)
        return ignis__shard_scatter(call, bucket);
    gradients.id = bucket->memory->slot.handle;
    if (parallel->across.id)
        return ignis__shard_average(call, bucket);
    return ignis_comm_all_reduce(parallel->comm, gradients, gradients, IGNIS_OP_AVG) == IGNIS_OK;
}

/*  Makes the second stream the thread's current one, after the work that the thread has queued. */
IGNIS__PRIVATE bool ignis__parallel_enter_second(const char *call, ignis__parallel_state *parallel,
                                                 ignis__second_stream *second)
{
    ignis__device *device = parallel->device;
    ignis__thread *thread = ignis__thread_state();
    const int ordinal = ignis__device_ordinal(device);
    second->capture = ignis__capture_on(device);
    second->main_stream = ignis__stream_current(device);
    second->own = thread->stream[ordinal];
    second->own_serial = thread->stream_serial[ordinal];
    if (!(second->capture ? ignis__capture_draw(call, device, second->main_stream, parallel->stream_serial)
                          : ignis__stream_order(call, device, second->main_stream, device, parallel->stream)))
        return false;
    if (second->capture)
        second->capture->stream = parallel->stream;
    thread->stream[ordinal] = parallel->stream;
    thread->stream_serial[ordinal] = parallel->stream_serial;
    return true;
}

IGNIS__PRIVATE void ignis__parallel_leave_second(const ignis__parallel_state *parallel,
                                                 const ignis__second_stream *second)
{
    ignis__thread *thread = ignis__thread_state();
    const int ordinal = ignis__device_ordinal(parallel->device);
    if (second->capture)
        second->capture->stream = second->main_stream;
    thread->stream[ordinal] = second->own;
    thread->stream_serial[ordinal] = second->own_serial;
}

/*  Launches the average of a bucket on the second stream, after the work that the thread's stream has queued. */
static bool ignis__parallel_launch(const char *call, ignis__parallel_state *parallel, ignis__bucket *bucket)
{
    ignis__second_stream second;
    bool ok = (parallel->shard < IGNIS_SHARD_GRADIENTS || ignis__shard_stage(call, bucket)) &&
              ignis__parallel_enter_second(call, parallel, &second);
    if (!ok)
        return false;
    ok = ignis__bucket_average(call, bucket);
    ignis__parallel_leave_second(parallel, &second);
    return ok;
}

/*  Launches complete buckets in order: an early one waits for those before it. */
static bool ignis__parallel_launch_ready(const char *call, ignis__parallel_state *parallel)
{
    while (parallel->launched < parallel->bucket_count && parallel->buckets[parallel->launched].ready)
        if (!ignis__parallel_launch(call, parallel, &parallel->buckets[parallel->launched++]))
            return false;
    return true;
}

/*  Joins a backward pass that has reached a bucket. Without averages its leaves are ordinary ones. One
    backward pass at a time averages: ranks could not agree on an order of two. */
static bool ignis__bucket_join(ignis__grad_group *group, const char *call, const void *backward_pass, bool *joins)
{
    ignis__parallel_state *parallel = ((ignis__bucket *)group)->parallel;
    bool busy;
    ignis__mutex_lock(&parallel->slot.lock);
    busy = parallel->backward_pass && parallel->backward_pass != backward_pass;
    *joins = parallel->backward_pass == backward_pass || !parallel->no_sync;
    if (!busy && *joins)
        parallel->backward_pass = backward_pass;
    ignis__mutex_unlock(&parallel->slot.lock);
    return !busy || ignis__fail_false(IGNIS_DIAG_PARALLEL_BUSY, call,
                                      "another thread's ignis_backward is averaging the gradients of these parameters");
}

static bool ignis__bucket_ready(ignis__grad_group *group, const char *call)
{
    ignis__bucket *bucket = (ignis__bucket *)group;
    bucket->ready = true;
    return ignis__parallel_launch_ready(call, bucket->parallel);
}

/*  Ends the averaging: launches the remaining buckets, and makes the thread's stream wait for all. */
static bool ignis__parallel_finish(const char *call, ignis__parallel_state *parallel, bool ok)
{
    int i;
    for (i = 0; i < parallel->bucket_count; i++)
        parallel->buckets[i].ready = true;
    ok = ok && ignis__parallel_launch_ready(call, parallel);
    if (parallel->launched > 0 && !ignis__stream_order(call, parallel->device, parallel->stream, parallel->device,
                                                       ignis__stream_current(parallel->device)))
        ok = false;
    ignis__shard_unstage(call, parallel);
    for (i = 0; i < parallel->bucket_count; i++)
        parallel->buckets[i].ready = false;
    parallel->launched = 0;
    ignis__mutex_lock(&parallel->slot.lock);
    parallel->backward_pass = NULL;
    ignis__mutex_unlock(&parallel->slot.lock);
    return ok;
}

/*  Ends a backward pass that has reached the bucket. Called for each such bucket; the first call ends the
    averaging. */
static bool ignis__bucket_end(ignis__grad_group *group, const char *call, const void *backward_pass, bool ok)
{
    ignis__parallel_state *parallel = ((ignis__bucket *)group)->parallel;
    bool averages;
    ignis__mutex_lock(&parallel->slot.lock);
    averages = parallel->backward_pass == backward_pass;
    ignis__mutex_unlock(&parallel->slot.lock);
    if (averages)
        ok = ignis__parallel_finish(call, parallel, ok);
    return ignis__parallel_drop(call, parallel) && ok;
}

/* --- creating --- */

/*  Finds a tensor among the parameters; -1 if it is not one. */
static int ignis__parallel_find(const ignis__parallel_state *parallel, const ignis__tensor *tensor)
{
    int i = parallel->count - 1;
    while (i >= 0 && parallel->parameters[i] != tensor)
        i--;
    return i;
}

/*  Checks that a tensor can be the next parameter. */
static bool ignis__parallel_check(const char *call, const ignis__parallel_state *parallel, ignis__tensor *tensor)
{
    ignis__tape_state standing = ignis__tensor_tape_state(tensor);
    int before = ignis__parallel_find(parallel, tensor);
    if (!standing.leaf || !standing.requires_grad)
        return ignis__fail_false(IGNIS_DIAG_PARAMETER_KIND, call, "parameter %d, %s, %s", parallel->count,
                                 ignis__shape_write(&tensor->shape).text,
                                 standing.leaf ? "requires no gradient" : "is the result of an operation");
    if (tensor->device != parallel->device)
        return ignis__fail_false(IGNIS_DIAG_DEVICE_DIFFERS, call,
                                 "parameter %d is on device %d; the communicator is on device %d", parallel->count,
                                 ignis__device_ordinal(tensor->device), ignis__device_ordinal(parallel->device));
    return before < 0 || ignis__fail_false(IGNIS_DIAG_PARAMETER_KIND, call, "parameter %d, %s, is also parameter %d",
                                           parallel->count, ignis__shape_write(&tensor->shape).text, before);
}

/*  Holds the parameters. */
static bool ignis__parallel_hold_parameters(const char *call, ignis__parallel_state *parallel,
                                            const ignis_tensor *handles, int count)
{
    for (; parallel->count < count; parallel->count++) {
        ignis__tensor *tensor = ignis__tensor_hold(call, handles[parallel->count]);
        if (!tensor)
            return false;
        if (!ignis__parallel_check(call, parallel, tensor)) {
            ignis__tensor_drop(call, tensor);
            return false;
        }
        parallel->parameters[parallel->count] = tensor;
    }
    return true;
}

/*  Checks that no parameter belongs to another handle. With several ranks, claims them until the handle is
    complete. */
static bool ignis__parallel_claim(const char *call, ignis__parallel_state *parallel, bool alone)
{
    const ignis__parallel_state *other;
    int i, taken = -1;
    ignis__mutex_lock(&ignis__parallels_starting.lock);
    for (i = 0; i < parallel->count && taken < 0; i++) {
        ignis__tensor *tensor = parallel->parameters[i];
        ignis__mutex_lock(&tensor->slot.lock);
        taken = tensor->group ? i : -1;
        ignis__mutex_unlock(&tensor->slot.lock);
        for (other = alone ? NULL : ignis__parallels_starting.first; other && taken < 0; other = other->next_starting)
            taken = ignis__parallel_find(other, tensor) < 0 ? -1 : i;
    }
    if (taken < 0 && !alone) {
        parallel->next_starting = ignis__parallels_starting.first;
        ignis__parallels_starting.first = parallel;
    }
    ignis__mutex_unlock(&ignis__parallels_starting.lock);
    return taken < 0 ||
           ignis__fail_false(IGNIS_DIAG_PARAMETER_KIND, call, "parameter %d, %s, is already trained data-parallel",
                             taken, ignis__shape_write(&parallel->parameters[taken]->shape).text);
}

/*  Makes a view of the memory of a bucket for a parameter, `at` bytes from its start; claimed. NULL, and reported, on
    failure. */
static ignis__array *ignis__bucket_view(const char *call, const ignis__array *memory, const ignis__tensor *parameter,
                                        int64_t at)
{
    return ignis__array_adopt(call,
                              ignis__array_view(call, memory, &parameter->shape, ignis__tensor_numel(parameter), at));
}

/*  Creates a zeroed bucket for parameters first to last, with a view for each gradient, and with shards for each
    parameter; existing gradients are copied. */
static bool ignis__bucket_make(const char *call, ignis__parallel_state *parallel, int first, int last, int64_t bytes)
{
    ignis__bucket *bucket = &parallel->buckets[parallel->bucket_count];
    ignis_dtype dtype = parallel->parameters[last]->dtype;
    const bool whole = parallel->shard < IGNIS_SHARD_GRADIENTS;
    int64_t count = bytes / ignis__dtypes[dtype].size, end = 0, at;
    bool ok = true;
    int i;
    bucket->dtype = dtype;
    bucket->numel = whole ? count : count / parallel->place.ranks;
    if (whole)
        bucket->memory = ignis__array_adopt(
            call, ignis__array_zeroed(call, parallel->device, dtype, bucket->numel, "gradients", false));
    if (whole && !bucket->memory)
        return false;
    bucket->parallel = parallel;
    bucket->first = first;
    bucket->last = last;
    bucket->group.owner = &parallel->slot;
    bucket->group.leaf_count = last - first + 1;
    bucket->group.meet_fn = ignis__bucket_join;
    bucket->group.ready_fn = ignis__bucket_ready;
    bucket->group.end_fn = ignis__bucket_end;
    parallel->bucket_count++;
    parallel->bytes += bucket->numel * ignis__dtypes[dtype].size;
    if (parallel->shard == IGNIS_SHARD_PARAMETERS) {
        ok = ignis__gather_make(call, bucket, dtype, count);
    } else if (parallel->shard) {
        bucket->values =
            ignis__array_adopt(call, ignis__array_zeroed(call, parallel->device, dtype, count, "parameters", false));
        ok = bucket->values != NULL;
    }
    bucket->group.sharing = parallel->shard ? &ignis__shard_sharings[parallel->shard] : NULL;
    for (i = last; ok && i >= first; i--) {
        ignis__tensor *parameter = parallel->parameters[i];
        at = ignis__shard_place(parallel, parameter, &end);
        parallel->places[i] = at / ignis__dtypes[dtype].size;
        if (whole) {
            parallel->grads[i] = ignis__bucket_view(call, bucket->memory, parameter, at);
            ok = parallel->grads[i] != NULL;
        }
        if (ok && bucket->values) {
            parallel->values[i] = ignis__bucket_view(call, bucket->values, parameter, at);
            ok = parallel->values[i] && ignis__shard_copy(call, parallel, bucket, i);
        }
        ignis__leaf_enter(parameter);
        if (ok && whole && parameter->grad && ignis__tensor_numel(parameter) > 0)
            ok = ignis__array_copy_bytes(call, parallel->grads[i], 0, parameter->grad);
        ignis__leaf_leave(parameter);
    }
    return ok && (!bucket->whole || ignis__gather_begin(call, bucket, parallel->broadcasts));
}

/*  Plans the buckets: from the last parameter to the first, neighbours of one dtype together. Makes them, or with
    `bytes` only adds up their sizes. */
static bool ignis__parallel_plan(const char *call, ignis__parallel_state *parallel, const ignis_parallel_desc *desc,
                                 int64_t *bytes)
{
    int64_t usual = desc && desc->bucket_bytes ? desc->bucket_bytes : (int64_t)25 << 20,
            limit = desc && desc->first_bucket_bytes ? desc->first_bucket_bytes : (int64_t)1 << 20, end = 0, size;
    int last = parallel->count - 1, i;
    for (i = last; i >= 0; i--) {
        const ignis__tensor *parameter = parallel->parameters[i], *next = i ? parallel->parameters[i - 1] : NULL;
        (void)ignis__shard_place(parallel, parameter, &end);
        if (next && next->dtype == parameter->dtype && end < limit)
            continue;
        size = ignis__shard_bucket_bytes(parallel, parameter->dtype, end);
        if (bytes)
            *bytes += size;
        else if (!ignis__bucket_make(call, parallel, i, last, size))
            return false;
        last = i - 1;
        end = 0;
        limit = usual;
    }
    return true;
}

/*  Moves the gradients, and with shards the parameters, into the buckets. Cannot fail. */
static void ignis__parallel_install(const char *call, ignis__parallel_state *parallel)
{
    int i, b = 0;
    for (i = parallel->count - 1; i >= 0; i--) {
        ignis__tensor *parameter = parallel->parameters[i];
        ignis__array *before = NULL, *data = NULL;
        while (i < parallel->buckets[b].first)
            b++;
        ignis__leaf_enter(parameter);
        ignis__mutex_lock(&parameter->slot.lock);
        if (parallel->grads[i]) {
            before = parameter->grad;
            parameter->grad = parallel->grads[i];
        }
        parameter->group = &parallel->buckets[b].group;
        if (parallel->values[i] && parameter->data) {
            data = parameter->data;
            parameter->data = parallel->values[i];
        } else {
            data = parallel->values[i]; /* another thread has released the tensor */
        }
        ignis__mutex_unlock(&parameter->slot.lock);
        ignis__leaf_leave(parameter);
        if (before)
            ignis__array_unclaim(call, before);
        if (data)
            ignis__array_unclaim(call, data);
    }
    ignis__atomic_add(&ignis__grad_groups, (uint64_t)parallel->bucket_count);
    parallel->is_installed = true;
}

static bool ignis__parallel_stream(const char *call, ignis__parallel_state *parallel)
{
    ignis__binding binding;
    bool ok;
    if (!ignis__device_enter(call, parallel->device, &binding))
        return false;
    ok =
        !IGNIS__CUDA_FAILED(call, parallel->device, cuStreamCreate, (&parallel->stream, IGNIS__CU_STREAM_NON_BLOCKING));
    if (ok)
        parallel->stream_serial = ignis__stream_adopt(call, parallel->device, parallel->stream);
    ignis__device_leave(&binding);
    return ok && parallel->stream_serial;
}

/*  Broadcasts the parameters of rank 0, through views of their arrays, which have other owners. */
static bool ignis__parallel_broadcast(const char *call, ignis__parallel_state *parallel)
{
    bool ok = true;
    int i;
    for (i = 0; ok && !parallel->shard && i < parallel->count; i++) {
        ignis__array *data = ignis__tensor_array(call, parallel->parameters[i]);
        ignis_array view;
        if (!data)
            return false;
        view = ignis__array_view(call, data, &data->shape, data->numel, 0);
        ok = view.id && (data->numel == 0 || ignis_comm_broadcast(parallel->comm, view, 0) == IGNIS_OK);
        ignis__array_drop(call, data);
        if (view.id)
            ignis__array_discard(call, &view);
    }
    ok = ok && (!parallel->shard || ignis__shard_broadcast(parallel));
    return ignis_comm_synchronize(parallel->comm) == IGNIS_OK && ok;
}

/*  Makes the buckets. */
static bool ignis__parallel_make(const char *call, ignis__parallel_state *parallel, const ignis_parallel_desc *desc)
{
    int64_t bytes = 0;
    if (parallel->shard == IGNIS_SHARD_PARAMETERS &&
        !(ignis__parallel_plan(call, parallel, desc, &bytes) &&
          ignis__gather_open(call, parallel, bytes / parallel->place.ranks)))
        return false;
    return ignis__parallel_plan(call, parallel, desc, NULL);
}

/*  Does all that can fail when a handle is created. */
static bool ignis__parallel_start(const char *call, ignis__parallel_state *parallel, const ignis_tensor *parameters,
                                  int count, bool alone, const ignis_parallel_desc *desc)
{
    size_t number = (size_t)count;
    parallel->parameters = (ignis__tensor **)ignis__alloc_for(call, sizeof(ignis__tensor *) * number);
    parallel->grads = (ignis__array **)ignis__alloc_for(call, sizeof(ignis__array *) * number);
    parallel->values = (ignis__array **)ignis__alloc_for(call, sizeof(ignis__array *) * number);
    parallel->places = (int64_t *)ignis__alloc_for(call, sizeof(int64_t) * number);
    parallel->buckets = (ignis__bucket *)ignis__alloc_for(call, sizeof(ignis__bucket) * number);
    return parallel->parameters && parallel->grads && parallel->values && parallel->places && parallel->buckets &&
           ignis__parallel_hold_parameters(call, parallel, parameters, count) &&
           ignis__parallel_claim(call, parallel, alone) && ignis__shard_check(call, parallel) &&
           (alone || (ignis__parallel_groups_make(call, parallel) && ignis__parallel_stream(call, parallel) &&
                      ignis__parallel_make(call, parallel, desc) &&
                      (!parallel->broadcasts || ignis__parallel_broadcast(call, parallel))));
}

IGNIS_API IGNIS__COLD ignis_parallel ignis_parallel_create(ignis_comm comm, const ignis_tensor *parameters, int count,
                                                           const ignis_parallel_desc *desc)
{
    static const char call[] = "ignis_parallel_create";
    ignis_parallel handle = IGNIS__ZERO;
    ignis__parallel_state *parallel;
    ignis__parallel_place place;
    ignis_comm_info info;
    if (!ignis__enter(call) || ignis__capture_refuses(call) || !ignis__check_not_null(call, "parameters", parameters))
        return handle;
    if (count < 1 || (desc && (desc->bucket_bytes < 0 || desc->first_bucket_bytes < 0))) {
        ignis__fail(
            IGNIS_DIAG_BAD_NUMBER, call,
            "count is %d, bucket bytes are %lld and %lld; expected a count of 1 or more, and bytes of 0 or more", count,
            (long long)(desc ? desc->bucket_bytes : 0), (long long)(desc ? desc->first_bucket_bytes : 0));
        return handle;
    }
    if (desc && (unsigned)desc->shard >= IGNIS_SHARD_COUNT) {
        ignis__fail(IGNIS_DIAG_BAD_ENUM, call, "shard is %d; expected IGNIS_SHARD_NONE to _PARAMETERS, 0 to %d",
                    (int)desc->shard, IGNIS_SHARD_COUNT - 1);
        return handle;
    }
    if (ignis__comm_query(call, comm, &info) != IGNIS_OK || !ignis__parallel_place_find(call, comm, desc, &place))
        return handle;
    parallel = (ignis__parallel_state *)ignis__pool_take(call, &ignis__parallels);
    if (!parallel)
        return handle;
    memset((char *)parallel + sizeof parallel->slot, 0, sizeof *parallel - sizeof parallel->slot);
    parallel->comm = comm;
    parallel->device = &ignis__devices[info.device];
    parallel->inside = comm; /* until there are groups */
    parallel->place = place;
    parallel->shard = desc ? desc->shard : IGNIS_SHARD_NONE;
    parallel->shard_ranks = desc ? desc->shard_ranks : 0;
    parallel->broadcasts = !desc || !desc->no_broadcast;
    parallel->current = parallel->before = -1;
    ignis__mutex_init(&parallel->gathering);
    if (parallel->shard == IGNIS_SHARD_PARAMETERS)
        IGNIS__HOOK_SET(ignis__graph_settle, ignis__parallels_settle);
    ignis__section_use(IGNIS__SECTION_PARALLEL, ignis__parallels_close);
    if (!ignis__parallel_start(call, parallel, parameters, count, info.size == 1, desc)) {
        (void)ignis__parallel_end(call, parallel);
        return handle;
    }
    if (parallel->bucket_count)
        ignis__parallel_install(call, parallel);
    ignis__parallel_end_claim(parallel);
    handle.id = ignis__pool_publish(&ignis__parallels, parallel);
    return handle;
}

/* --- sections without averages, queries, freeing --- */

/*  Opens or closes a section without averages. */
static ignis_status ignis__parallel_change_nesting(const char *call, ignis_parallel handle, int by)
{
    ignis__parallel_state *parallel = ignis__parallel_hold(call, handle);
    bool ok;
    if (!parallel)
        return ignis__failed();
    ignis__mutex_lock(&parallel->slot.lock);
    ok = parallel->no_sync + by >= 0;
    if (ok)
        parallel->no_sync += by;
    ignis__mutex_unlock(&parallel->slot.lock);
    (void)ignis__parallel_drop(call, parallel);
    return ok ? IGNIS_OK
              : ignis__fail(IGNIS_DIAG_SCOPE_ORDER, call, "no section of ignis_parallel_no_sync_begin is open");
}

IGNIS_API ignis_status ignis_parallel_no_sync_begin(ignis_parallel parallel)
{
    return ignis__parallel_change_nesting("ignis_parallel_no_sync_begin", parallel, 1);
}

IGNIS_API ignis_status ignis_parallel_no_sync_end(ignis_parallel parallel)
{
    return ignis__parallel_change_nesting("ignis_parallel_no_sync_end", parallel, -1);
}

IGNIS_API ignis_status ignis_parallel_query(ignis_parallel handle, ignis_parallel_info *info)
{
    static const char call[] = "ignis_parallel_query";
    ignis__parallel_state *parallel =
        ignis__check_not_null(call, "info", info) ? ignis__parallel_hold(call, handle) : NULL;
    if (!parallel)
        return ignis__failed();
    memset(info, 0, sizeof *info);
    ignis__mutex_lock(&parallel->slot.lock);
    info->parameters = parallel->count;
    info->buckets = parallel->bucket_count;
    info->bytes = parallel->bytes;
    info->shard = parallel->shard;
    info->shard_ranks = parallel->shard ? parallel->place.ranks : 1;
    info->syncs = parallel->no_sync == 0;
    ignis__mutex_unlock(&parallel->slot.lock);
    (void)ignis__parallel_drop(call, parallel);
    return IGNIS_OK;
}

IGNIS_API ignis_status ignis_parallel_free(ignis_parallel handle)
{
    static const char call[] = "ignis_parallel_free";
    const uint64_t failures = ignis__failures();
    ignis__parallel_state *parallel;
    bool live, ok;
    if (!handle.id)
        return IGNIS_OK;
    parallel = ignis__parallel_hold(call, handle);
    if (!parallel)
        return ignis__failed();
    if (ignis__capture_refuses(call)) {
        (void)ignis__parallel_drop(call, parallel);
        return ignis__failed();
    }
    live = ignis__handle_kill(parallel);
    ok = ignis__parallel_drop(call, parallel);
    if (!live)
        return ignis__fail(IGNIS_DIAG_PARALLEL_FREED, call, "another thread has freed the handle");
    return ignis__ended(failures, ok);
}

#endif /* IGNIS_NO_TENSORS */

/*  >>parallel.regroup - data-parallel training that goes on with the ranks of another communicator

    Parameters, their slices and the state of optimizers stay where they are, so a rank that lives on brings them along.
    It makes the groups and shares its slices as ignis_parallel_create does on ranks that join, in the same order.
    Uses: data_parallel, groups, gathering. Invariant: after a failure the handle has no groups, or those of the new
    communicator, and can be moved again. */

#ifndef IGNIS_NO_TENSORS

/*  Checks that a rank has the same part of what is shared among the ranks of another communicator. */
static bool ignis__parallel_regroup_check(const char *call, const ignis__parallel_state *parallel, ignis_comm comm,
                                          ignis__parallel_place *place)
{
    const ignis__parallel_place *before = &parallel->place;
    ignis_parallel_desc desc = IGNIS__ZERO;
    ignis_comm_info info;
    desc.shard = parallel->shard;
    desc.shard_ranks = parallel->shard_ranks;
    if (ignis__comm_query(call, comm, &info) != IGNIS_OK ||
        !ignis__parallel_place_find(call, comm, parallel->shard ? &desc : NULL, place))
        return false;
    if (&ignis__devices[info.device] != parallel->device)
        return ignis__fail_false(IGNIS_DIAG_DEVICE_DIFFERS, call,
                                 "the communicator is on device %d; expected device %d, which has the parameters",
                                 info.device, ignis__device_ordinal(parallel->device));
    if ((info.size == 1) != !parallel->stream)
        return ignis__fail_false(IGNIS_DIAG_BAD_NUMBER, call,
                                 "comm has %d rank(s); expected %s, as for ignis_parallel_create", info.size,
                                 parallel->stream ? "several ranks" : "one");
    return !parallel->shard || memcmp(place, before, sizeof *place) == 0 ||
           ignis__fail_false(IGNIS_DIAG_BAD_NUMBER, call,
                             "this rank is rank %d of %d of group %d of %d; expected rank %d of %d of group %d of %d, "
                             "whose shards it has",
                             place->rank, place->ranks, place->group, place->copies, before->rank, before->ranks,
                             before->group, before->copies);
}

/*  Checks that no backward pass averages. */
static bool ignis__parallel_regroup_is_free(const char *call, ignis__parallel_state *parallel)
{
    bool busy;
    ignis__mutex_lock(&parallel->slot.lock);
    busy = parallel->backward_pass != NULL;
    ignis__mutex_unlock(&parallel->slot.lock);
    return !busy || ignis__fail_false(IGNIS_DIAG_PARALLEL_BUSY, call,
                                      "another thread's ignis_backward is averaging the gradients of the parameters");
}

/*  Waits for the work of the ranks before, and frees what a step has left that was not completed. */
static bool ignis__parallel_regroup_stop(const char *call, ignis__parallel_state *parallel)
{
    ignis__binding binding;
    bool ok = ignis__device_enter(call, parallel->device, &binding);
    int i;
    if (!ok)
        return false;
    ok = ignis__device_wait(call, parallel->device) &&
         (parallel->shard != IGNIS_SHARD_PARAMETERS || ignis__gather_stop(call, parallel));
    for (i = 0; ok && parallel->shard >= IGNIS_SHARD_GRADIENTS && i < parallel->bucket_count; i++)
        ok = parallel->buckets[i].group.sharing->forget_fn(&parallel->buckets[i].group, call);
    ignis__device_leave(&binding);
    return ok;
}

IGNIS_API IGNIS__COLD ignis_status ignis_parallel_regroup(ignis_parallel handle, ignis_comm comm)
{
    static const char call[] = "ignis_parallel_regroup";
    ignis__parallel_state *parallel = ignis__parallel_hold(call, handle);
    ignis__parallel_place place;
    bool ok;
    if (!parallel)
        return ignis__failed();
    memset(&place, 0, sizeof place);
    ok = !ignis__capture_refuses(call) && ignis__parallel_regroup_check(call, parallel, comm, &place) &&
         ignis__parallel_regroup_is_free(call, parallel) && ignis__parallel_regroup_stop(call, parallel);
    if (ok) {
        ignis__parallel_groups_leave(call, parallel);
        parallel->comm = comm;
        parallel->place = place;
        ok = ignis__parallel_groups_make(call, parallel) &&
             (parallel->shard != IGNIS_SHARD_PARAMETERS || !parallel->stream || ignis__gather_reopen(call, parallel));
    }
    ok = ignis__parallel_drop(call, parallel) && ok;
    return ok ? IGNIS_OK : ignis__failed();
}

#endif /* IGNIS_NO_TENSORS */

/*  >>parallel.tensor - tensor-parallel training: exchanges between ranks with gradients, and the linear layers

    An exchange is a pair of moves, one for the tensor and one for its gradient.
    Uses: the public functions of comm, the tape, ops.
    Invariant: all ranks make the same moves in the same order, also in backward.
    Locks: none. */

#ifndef IGNIS_NO_TENSORS

/*  Makes what a move gives this rank of an array that each rank has: a new array, or a view. No handle, and reported,
    on failure. */
static ignis_array ignis__rank_move_array(const char *call, ignis_comm comm, ignis__rank_move move,
                                          const ignis__array *from)
{
    ignis_array_desc desc = IGNIS__ZERO;
    ignis_array in, made = IGNIS__ZERO;
    ignis_comm_info ranks;
    ignis_status status = ignis__comm_query(call, comm, &ranks);
    const bool divides = move == IGNIS__MOVE_SLICE || move == IGNIS__MOVE_REDUCE_SCATTER;
    if (status != IGNIS_OK)
        return made;
    desc.shape = from->shape;
    if (divides && desc.shape.dim[0] % ranks.size != 0) {
        ignis__fail(IGNIS_DIAG_SHAPE_DIFFERS, call, "x is %s; expected rows that are a multiple of the %d ranks",
                    ignis__shape_write(&from->shape).text, ranks.size);
        return made;
    }
    desc.shape.dim[0] = divides                          ? from->shape.dim[0] / ranks.size
                        : move == IGNIS__MOVE_ALL_GATHER ? from->shape.dim[0] * ranks.size
                                                         : from->shape.dim[0];
    if (move == IGNIS__MOVE_NONE)
        return ignis__array_view(call, from, &from->shape, from->numel, 0);
    if (move == IGNIS__MOVE_SLICE)
        return ignis__array_slice(call, from, 0, ranks.rank * desc.shape.dim[0], desc.shape.dim[0]);
    desc.dtype = from->dtype;
    desc.device = ignis__device_in_desc(from->storage->device);
    made = ignis__array_create(call, &desc);
    in.id = from->slot.handle;
    if (!made.id)
        return made;
    status = move == IGNIS__MOVE_ALL_REDUCE   ? ignis_comm_all_reduce(comm, in, made, IGNIS_OP_SUM)
             : move == IGNIS__MOVE_ALL_GATHER ? ignis_comm_all_gather(comm, in, made)
                                              : ignis_comm_reduce_scatter(comm, in, made, IGNIS_OP_SUM);
    if (status != IGNIS_OK)
        ignis__array_discard(call, &made);
    return made;
}

/*  The parameters of the rule of an exchange. */
typedef struct ignis__rank_rule {
    const ignis__rank_exchange *exchange;
    ignis_comm comm;
} ignis__rank_rule;

static ignis_status ignis__rank_exchange_backward(const ignis_backward_args *args)
{
    const ignis__rank_rule *rule = (const ignis__rank_rule *)args->params;
    ignis__array *gradient;
    if (rule->exchange->backward == IGNIS__MOVE_NONE) {
        args->grad_inputs[0] = args->grad_output;
        return IGNIS_OK;
    }
    gradient = ignis__array_hold(rule->exchange->call, args->grad_output);
    if (gradient) {
        args->grad_inputs[0] =
            ignis__rank_move_array(rule->exchange->call, rule->comm, rule->exchange->backward, gradient);
        ignis__array_drop(rule->exchange->call, gradient);
    }
    return args->grad_inputs[0].id ? IGNIS_OK : ignis__failed();
}

static ignis_tensor ignis__rank_exchange_run(const ignis__rank_exchange *exchange, ignis_comm comm, ignis_tensor x)
{
    const char *call = exchange->call;
    ignis__tensor *tensor = ignis__tensor_hold(call, x);
    ignis__array *array = tensor ? ignis__tensor_array(call, tensor) : NULL;
    ignis_tensor result = ignis__no_tensor();
    ignis_rule rule = IGNIS__ZERO;
    ignis__rank_rule params;
    ignis__outer_call outer;
    ignis__outer_call_begin(&outer, call, NULL);
    params.exchange = exchange;
    params.comm = comm;
    rule.name = exchange->name;
    rule.backward_fn = ignis__rank_exchange_backward;
    rule.params = &params;
    rule.params_size = sizeof params;
    if (array)
        result = ignis__tensor_adopt(call, ignis__rank_move_array(call, comm, exchange->forward, array), false);
    if (result.id && ignis_tape_record(result, &x, 1, &rule) != IGNIS_OK) {
        ignis__tensor_discard(call, result);
        result = ignis__no_tensor();
    }
    ignis__outer_call_end(&outer);
    if (array)
        ignis__array_drop(call, array);
    if (tensor)
        ignis__tensor_drop(call, tensor);
    return result;
}

/*  The second of each pair is the first one of the other: gradients of one travel as tensors of the other. */
static const ignis__rank_exchange ignis__all_reduce_forward = {"ignis_comm_all_reduce_forward", "all_reduce_forward",
                                                               IGNIS__MOVE_ALL_REDUCE, IGNIS__MOVE_NONE},
                                  ignis__all_reduce_backward = {"ignis_comm_all_reduce_backward", "all_reduce_backward",
                                                                IGNIS__MOVE_NONE, IGNIS__MOVE_ALL_REDUCE},
                                  ignis__all_gather_rows = {"ignis_comm_all_gather_rows", "all_gather_rows",
                                                            IGNIS__MOVE_ALL_GATHER, IGNIS__MOVE_REDUCE_SCATTER},
                                  ignis__reduce_scatter_rows = {"ignis_comm_reduce_scatter_rows", "reduce_scatter_rows",
                                                                IGNIS__MOVE_REDUCE_SCATTER, IGNIS__MOVE_ALL_GATHER},
                                  ignis__slice_rows = {"ignis_comm_slice_rows", "slice_rows", IGNIS__MOVE_SLICE,
                                                       IGNIS__MOVE_ALL_GATHER},
                                  ignis__all_gather_columns = {"ignis_comm_all_gather_columns", "all_gather_columns",
                                                               IGNIS__MOVE_ALL_GATHER, IGNIS__MOVE_SLICE};

IGNIS_API ignis_tensor ignis_comm_all_reduce_forward(ignis_comm comm, ignis_tensor x)
{
    return ignis__rank_exchange_run(&ignis__all_reduce_forward, comm, x);
}

IGNIS_API ignis_tensor ignis_comm_all_reduce_backward(ignis_comm comm, ignis_tensor x)
{
    return ignis__rank_exchange_run(&ignis__all_reduce_backward, comm, x);
}

IGNIS_API ignis_tensor ignis_comm_all_gather_rows(ignis_comm comm, ignis_tensor x)
{
    return ignis__rank_exchange_run(&ignis__all_gather_rows, comm, x);
}

IGNIS_API ignis_tensor ignis_comm_reduce_scatter_rows(ignis_comm comm, ignis_tensor x)
{
    return ignis__rank_exchange_run(&ignis__reduce_scatter_rows, comm, x);
}

IGNIS_API ignis_tensor ignis_comm_slice_rows(ignis_comm comm, ignis_tensor x)
{
    return ignis__rank_exchange_run(&ignis__slice_rows, comm, x);
}

/*  Gathers [1, rows, n] to [ranks, rows, n], of which [rows, ranks, n] is the transpose. */
IGNIS_API ignis_tensor ignis_comm_all_gather_columns(ignis_comm comm, ignis_tensor x)
{
    const char *call = ignis__all_gather_columns.call;
    ignis__tensor *tensor = ignis__tensor_hold(call, x);
    ignis__outer_call outer;
    ignis_tensor parts, gathered, columns, result;
    ignis_shape shape;
    int64_t n;
    if (!tensor)
        return ignis__no_tensor();
    shape = tensor->shape;
    ignis__tensor_drop(call, tensor);
    ignis__outer_call_begin(&outer, call, NULL);
    n = shape.dim[shape.ndim - 1];
    parts = ignis_reshape(x, IGNIS_SHAPE(1, ignis__shape_product(&shape, 0, shape.ndim - 1), n));
    gathered = parts.id ? ignis__rank_exchange_run(&ignis__all_gather_columns, comm, parts) : parts;
    columns = gathered.id ? ignis_transpose(gathered, 0, 1) : gathered;
    if (columns.id)
        shape.dim[shape.ndim - 1] = n * ignis_tensor_shape(gathered).dim[0];
    result = columns.id ? ignis_reshape(columns, shape) : columns;
    ignis__outer_call_end(&outer);
    ignis__tensor_discard(call, parts);
    ignis__tensor_discard(call, gathered);
    ignis__tensor_discard(call, columns);
    return result;
}

/* --- linear layers --- */

IGNIS_API ignis_tensor ignis_column_parallel_linear(ignis_comm comm, ignis_tensor x, ignis_tensor w, ignis_tensor bias)
{
    static const char call[] = "ignis_column_parallel_linear";
    ignis__outer_call outer;
    ignis_tensor input, result;
    if (!ignis__enter(call))
        return ignis__no_tensor();
    ignis__outer_call_begin(&outer, call, NULL);
    input = ignis_comm_all_reduce_backward(comm, x);
    result = input.id ? ignis_linear(input, w, bias) : input;
    ignis__outer_call_end(&outer);
    ignis__tensor_discard(call, input);
    return result;
}

IGNIS_API ignis_tensor ignis_row_parallel_linear(ignis_comm comm, ignis_tensor x, ignis_tensor w, ignis_tensor bias)
{
    static const char call[] = "ignis_row_parallel_linear";
    ignis__outer_call outer;
    ignis_tensor part, sum, result;
    if (!ignis__enter(call))
        return ignis__no_tensor();
    ignis__outer_call_begin(&outer, call, NULL);
    part = ignis_linear(x, w, ignis__no_tensor());
    sum = part.id ? ignis_comm_all_reduce_forward(comm, part) : part;
    ignis__tensor_discard(call, part);
    result = sum.id && bias.id ? ignis_add(sum, bias) : sum;
    ignis__outer_call_end(&outer);
    if (bias.id)
        ignis__tensor_discard(call, sum);
    return result;
}

/* --- clipping --- */

IGNIS_API ignis_status ignis_comm_clip_grad_norms(ignis_comm comm, const ignis_optimizer *optimizers, int count,
                                                  int divided, double max_norm)
{
    static const char call[] = "ignis_comm_clip_grad_norms";
    ignis__clip_ranks ranks;
    ignis_comm_info info;
    ignis__outer_call outer;
    ignis_status status = ignis__comm_query(call, comm, &info);
    if (status != IGNIS_OK)
        return status;
    if (divided < 0 || divided > count)
        return ignis__fail(IGNIS_DIAG_BAD_NUMBER, call, "divided is %d; expected 0 to count, which is %d", divided,
                           count);
    ignis__outer_call_begin(&outer, call, NULL);
    ranks.of = ignis_comm_ranks(comm);
    ranks.divided = divided;
    status = ignis__clip_grad_norms(call, optimizers, count, max_norm, &ranks);
    ignis__outer_call_end(&outer);
    return status;
}

#endif /* IGNIS_NO_TENSORS */

/*  >>parallel.vocab - tensor-parallel training: embedding and cross-entropy of a vocabulary that ranks divide

    Rank r has classes r * m to (r + 1) * m - 1. Formulas compute what the ranks exchange, and the gradient.
    Uses: tensor_parallel, formulas, losses.
    Invariant: each rank computes the loss from the same exchanged numbers, so all have its bits.
    Locks: none. */

#ifndef IGNIS_NO_TENSORS

#define IGNIS__VOCAB_LIMIT ((int64_t)1 << 24) /* formulas compute classes in f32 */

/*  Finds how many classes this rank has: rows of a table, or columns of logits; 0 if a table has other dimensions,
    which is found later. Checks how many all ranks have together. False, and reported, on failure. */
static bool ignis__vocab_begin(const char *call, ignis_comm comm, ignis_tensor handle, bool is_table, int64_t *classes,
                               ignis_comm_info *ranks)
{
    ignis__tensor *tensor;
    if (!ignis__enter(call) || ignis__comm_query(call, comm, ranks) != IGNIS_OK)
        return false;
    tensor = ignis__tensor_hold(call, handle);
    if (!tensor)
        return false;
    if (is_table)
        *classes = tensor->shape.ndim == 2 ? tensor->shape.dim[0] : 0;
    else
        *classes = tensor->shape.dim[tensor->shape.ndim - 1];
    ignis__tensor_drop(call, tensor);
    return *classes <= (IGNIS__VOCAB_LIMIT - 1) / ranks->size ||
           ignis__fail_false(IGNIS_DIAG_UNSUPPORTED, call,
                             "%d ranks have %lld classes each; 2^24 or more together are not supported", ranks->size,
                             (long long)*classes);
}

/*  Makes an array on the device of another one; no handle, and reported, on failure. */
static ignis_array ignis__vocab_array(const char *call, const ignis__array *beside, ignis_shape shape,
                                      ignis_dtype dtype)
{
    ignis_array_desc desc = IGNIS__ZERO;
    desc.shape = shape;
    desc.dtype = dtype;
    desc.device = ignis__device_in_desc(beside->storage->device);
    return ignis__array_create(call, &desc);
}

/*  Frees an array, if there is one. */
static void ignis__vocab_free(const char *call, ignis_array *array)
{
    if (array->id)
        ignis__array_discard(call, array);
}

/*  Computes the places of classes among the `first` and later ones of this rank; some are outside. */
static ignis_tensor ignis__vocab_places(const char *call, ignis_tensor classes, int64_t first)
{
    ignis__tensor *tensor = ignis__tensor_hold(call, classes);
    ignis__array *array = tensor ? ignis__tensor_array(call, tensor) : NULL;
    ignis_array places = IGNIS__ZERO, ids;
    if (array && ignis__dtype_is_float(array->dtype)) {
        ignis__fail(IGNIS_DIAG_DTYPE_DIFFERS, call, "ids is %s; i32 or i64 is needed",
                    ignis__dtypes[array->dtype].name);
    } else if (array) {
        ids.id = array->slot.handle;
        places = ignis__vocab_array(call, array, array->shape, IGNIS_I64);
        if (places.id && ignis_array_map(places, "ids - first",
                                         IGNIS_ARRAYS(ids, IGNIS_ARRAY_VALUE(first, (double)first))) != IGNIS_OK)
            ignis__array_discard(call, &places);
    }
    if (array)
        ignis__array_drop(call, array);
    if (tensor)
        ignis__tensor_drop(call, tensor);
    return ignis__tensor_adopt(call, places, false);
}

IGNIS_API ignis_tensor ignis_vocab_parallel_embedding(ignis_comm comm, ignis_tensor table, ignis_tensor ids)
{
    static const char call[] = "ignis_vocab_parallel_embedding";
    int64_t rows;
    ignis_tensor places, looked_up, column, part, result = ignis__no_tensor();
    ignis_comm_info ranks;
    ignis__outer_call outer;
    ignis_shape shape;
    if (!ignis__vocab_begin(call, comm, table, true, &rows, &ranks))
        return result;
    ignis__outer_call_begin(&outer, call, NULL);
    places = ignis__vocab_places(call, ids, ranks.rank * rows);
    looked_up = places.id ? ignis_embedding(table, places) : places;
    shape = looked_up.id ? ignis_tensor_shape(looked_up) : IGNIS_SHAPE(1);
    shape.dim[shape.ndim - 1] = 1;
    column = looked_up.id ? ignis_reshape(places, shape) : looked_up;
    part = column.id
               ? ignis_map("i >= 0 && i < n ? x : i + first >= 0 && i + first < all ? 0 : nan",
                           IGNIS_INPUTS(IGNIS_NAMED(x, looked_up), IGNIS_NAMED(i, column), IGNIS_VALUE(n, (double)rows),
                                        IGNIS_VALUE(first, (double)(ranks.rank * rows)),
                                        IGNIS_VALUE(all, (double)(ranks.size * rows))))
               : column;
    ignis__tensor_discard(call, places);
    ignis__tensor_discard(call, looked_up);
    ignis__tensor_discard(call, column);
    if (part.id)
        result = ignis_comm_all_reduce_forward(comm, part);
    ignis__outer_call_end(&outer);
    ignis__tensor_discard(call, part);
    return result;
}

/* --- cross-entropy --- */

/*  Values of the formulas. */
typedef struct ignis__vocab_values {
    double first;   /* class of this rank */
    double columns; /* of this rank */
    double classes; /* of all ranks */
    double ignored, smoothing;
} ignis__vocab_values;

/*  Rows on their way to losses. Arrays of one number for each row are columns beside the logits. */
typedef struct ignis__vocab_rows {
    const char *call;
    ignis_comm comm;
    ignis_tensor logits, at_target; /* at_target: NaN if another rank has the target */
    ignis_array x, t, place, v;     /* arrays of tensors: logits, targets, these among the columns, at_target */
    ignis_array m;                  /* the largest logit of all ranks */
    ignis__array *sums;             /* of all ranks; claimed */
    ignis_array s, d;               /* views of sums, s first: of exp(x - m), of q (m - x) */
    ignis_array losses;             /* [...] */
    ignis__vocab_values values;
} ignis__vocab_rows;

/*  Computes the gradient, which is g (softmax - q): q is 1 - e at the target plus e / classes. Saved: logits, targets,
    m, and the logarithm of s. */
static ignis_status ignis__vocab_cross_entropy_backward(const ignis_backward_args *args)
{
    static const char call[] = "ignis_vocab_parallel_cross_entropy";
    const ignis__vocab_values *values = (const ignis__vocab_values *)args->params;
    ignis_array x = args->saved[0], t = args->saved[1], m = args->saved[2], l = args->saved[3], g;
    ignis__array *logits = ignis__array_hold(call, x), *targets = ignis__array_hold(call, t);
    ignis_status status = IGNIS_OK;
    g = logits && targets ? ignis_array_reshape(args->grad_output, targets->shape) : IGNIS_NO_ARRAY;
    args->grad_inputs[0] = g.id ? ignis__array_create_like(call, logits, logits->dtype) : IGNIS_NO_ARRAY;
    if (args->grad_inputs[0].id)
        status = ignis_array_map(
            args->grad_inputs[0],
            "c = index(-1) + first; q = (c == t ? 1 - e : 0) + e/n; "
            "t == k || c >= n ? 0 : t < 0 || t >= n ? nan : g*(exp(x - m - l) - q)",
            IGNIS_ARRAYS(x, t, m, l, g, IGNIS_ARRAY_VALUE(first, values->first), IGNIS_ARRAY_VALUE(n, values->classes),
                         IGNIS_ARRAY_VALUE(k, values->ignored), IGNIS_ARRAY_VALUE(e, values->smoothing)));
    if (status != IGNIS_OK)
        ignis__array_discard(call, &args->grad_inputs[0]);
    ignis__vocab_free(call, &g);
    if (logits)
        ignis__array_drop(call, logits);
    if (targets)
        ignis__array_drop(call, targets);
    return args->grad_inputs[0].id ? IGNIS_OK : ignis__failed();
}

/*  Returns how many zeros travel after the sums. Columns, classes or options that differ between ranks make another
    number of most, and so a MISMATCH, instead of losses that are wrong. */
static int64_t ignis__vocab_tail(const ignis__vocab_values *values)
{
    const double mixed = 3 * values->columns + values->classes + 5 * values->ignored + 1024 * values->smoothing;
    const int64_t whole = mixed > -1e15 && mixed < 1e15 ? (int64_t)mixed : 0;
    return (whole % 61 + 61) % 61;
}

/*  Makes the arrays of the rows; columns of targets tell their shape. */
static bool ignis__vocab_rows_make(ignis__vocab_rows *rows, const ignis__array *logits, const ignis__array *targets)
{
    const ignis_dtype wide = ignis__wide_dtype(logits->dtype);
    const int64_t count = targets->numel;
    ignis_shape shape = targets->shape;
    ignis_array sums;
    rows->x.id = logits->slot.handle;
    rows->t.id = targets->slot.handle;
    rows->m = ignis__vocab_array(rows->call, logits, shape, wide);
    sums = rows->m.id
               ? ignis__vocab_array(rows->call, logits, IGNIS_SHAPE(2 * count + ignis__vocab_tail(&rows->values)), wide)
               : rows->m;
    rows->sums = sums.id ? ignis__array_adopt(rows->call, sums) : NULL;
    if (!rows->sums || ignis_array_zero(sums) != IGNIS_OK)
        return false;
    rows->s = ignis__array_view(rows->call, rows->sums, &shape, count, 0);
    rows->d = ignis__array_view(rows->call, rows->sums, &shape, count, count * ignis__dtypes[wide].size);
    if (shape.ndim > 1)
        shape.ndim--;
    rows->losses = ignis__vocab_array(rows->call, logits, shape, wide);
    return rows->s.id && rows->d.id && rows->losses.id;
}

/*  Computes m, the sums, and the losses of rows. An ignored row has loss 0, a target that is not a class NaN. */
static bool ignis__vocab_rows_run(ignis__vocab_rows *rows)
{
    const ignis__vocab_values *values = &rows->values;
    const ignis_array x = rows->x, t = rows->t, m = rows->m, s = rows->s, d = rows->d, i = rows->place, v = rows->v,
                      k = ignis_array_value(values->ignored), n = ignis_array_value(values->classes),
                      first = ignis_array_value(values->first), e = ignis_array_value(values->smoothing);
    ignis_array sums;
    sums.id = rows->sums->slot.handle;
    return ignis_array_reduce(m, IGNIS_REDUCE_MAX, "index(-1) + first < n ? x : -inf", IGNIS_ARRAYS(x, first, n)) ==
               IGNIS_OK &&
           ignis_comm_all_reduce(rows->comm, m, m, IGNIS_OP_MAX) == IGNIS_OK &&
           ignis_array_reduce(s, IGNIS_REDUCE_SUM, "index(-1) + first < n ? exp(x - m) : 0",
                              IGNIS_ARRAYS(x, m, first, n)) == IGNIS_OK &&
           (values->smoothing == 0 || ignis_array_reduce(d, IGNIS_REDUCE_SUM, "index(-1) + first < n ? e/n*(m - x) : 0",
                                                         IGNIS_ARRAYS(x, m, first, n, e)) == IGNIS_OK) &&
           ignis_array_map(d, "i >= 0 && i < columns && e < 1 ? d + (1 - e)*(m - v) : d",
                           IGNIS_ARRAYS(d, i, m, v, e, IGNIS_ARRAY_VALUE(columns, values->columns))) == IGNIS_OK &&
           ignis_comm_all_reduce(rows->comm, sums, sums, IGNIS_OP_SUM) == IGNIS_OK &&
           ignis_array_map(s, "log(s)", IGNIS_ARRAYS(s)) == IGNIS_OK &&
           ignis_array_map(rows->losses, "t == k ? 0 : t < 0 || t >= n ? nan : d + s", IGNIS_ARRAYS(t, d, s, k, n)) ==
               IGNIS_OK;
}

/*  Makes the losses a tensor, recorded with the logits as its input. */
static ignis_tensor ignis__vocab_rows_record(ignis__vocab_rows *rows)
{
    const ignis_array saved[4] = {rows->x, rows->t, rows->m, rows->s};
    ignis_rule rule = IGNIS__ZERO;
    ignis_tensor losses = ignis__tensor_adopt(rows->call, rows->losses, false);
    rows->losses = IGNIS_NO_ARRAY; /* it is the tensor's, or freed */
    rule.name = "vocab_parallel_cross_entropy";
    rule.backward_fn = ignis__vocab_cross_entropy_backward;
    rule.saved = saved;
    rule.saved_count = 4;
    rule.params = &rows->values;
    rule.params_size = sizeof rows->values;
    if (losses.id && ignis_tape_record(losses, &rows->logits, 1, &rule) != IGNIS_OK) {
        ignis__tensor_discard(rows->call, losses);
        losses = ignis__no_tensor();
    }
    return losses;
}

/*  Computes the losses of rows, whose targets are columns. */
static ignis_tensor ignis__vocab_losses(ignis__vocab_rows *rows, ignis_tensor targets)
{
    const char *call = rows->call;
    ignis__tensor *logits = ignis__tensor_hold(call, rows->logits), *column = ignis__tensor_hold(call, targets);
    ignis__array *x = logits ? ignis__tensor_array(call, logits) : NULL,
                 *t = column ? ignis__tensor_array(call, column) : NULL;
    ignis_tensor place = ignis__no_tensor(), losses = place;
    if (x && t && ignis__vocab_rows_make(rows, x, t)) {
        place = ignis__vocab_places(call, targets, (int64_t)rows->values.first);
        (void)ignis_no_grad_begin();
        rows->at_target = place.id ? ignis_gather(rows->logits, -1, place) : place;
        (void)ignis_no_grad_end();
        rows->place = ignis_tensor_data(place);
        if (rows->at_target.id) {
            rows->v = ignis_tensor_data(rows->at_target);
            losses = ignis__vocab_rows_run(rows) ? ignis__vocab_rows_record(rows) : losses;
        }
    }
    ignis__tensor_discard(call, place);
    ignis__tensor_discard(call, rows->at_target);
    ignis__vocab_free(call, &rows->s);
    ignis__vocab_free(call, &rows->d);
    ignis__vocab_free(call, &rows->m);
    ignis__vocab_free(call, &rows->losses);
    if (rows->sums)
        ignis__array_unclaim(call, rows->sums);
    if (x)
        ignis__array_drop(call, x);
    if (t)
        ignis__array_drop(call, t);
    if (logits)
        ignis__tensor_drop(call, logits);
    if (column)
        ignis__tensor_drop(call, column);
    return losses;
}

IGNIS_API ignis_tensor ignis_vocab_parallel_cross_entropy(ignis_comm comm, ignis_tensor logits, ignis_tensor targets,
                                                          const ignis_cross_entropy_desc *desc)
{
    static const char call[] = "ignis_vocab_parallel_cross_entropy";
    int64_t columns;
    ignis_cross_entropy_desc options = IGNIS__ZERO;
    ignis__vocab_rows rows = IGNIS__ZERO;
    ignis__cross_entropy entropy;
    ignis_comm_info ranks;
    ignis_tensor column, result = ignis__no_tensor();
    ignis__outer_call outer;
    if (desc)
        options = *desc;
    options.classes = 0; /* those of all ranks; checked here */
    if (!ignis__vocab_begin(call, comm, logits, false, &columns, &ranks) ||
        !ignis__rows_begin(call, logits, targets, &options, &entropy, &column))
        return result;
    if (desc && (desc->classes < 0 || desc->classes > ranks.size * columns)) {
        ignis__fail(IGNIS_DIAG_BAD_NUMBER, call, "desc->classes is %lld; %d ranks have %lld columns of logits each",
                    (long long)desc->classes, ranks.size, (long long)columns);
    } else {
        rows.call = call;
        rows.comm = comm;
        rows.logits = logits;
        rows.values.first = (double)(ranks.rank * columns);
        rows.values.columns = (double)columns;
        rows.values.classes = (double)(desc && desc->classes ? desc->classes : ranks.size * columns);
        rows.values.ignored = (double)entropy.ignore_index;
        rows.values.smoothing = options.label_smoothing;
        ignis__outer_call_begin(&outer, call, NULL);
        result = ignis__loss_of_rows(call, ignis__vocab_losses(&rows, column), options.reduction, targets,
                                     entropy.ignore_index);
        ignis__outer_call_end(&outer);
    }
    ignis__tensor_discard(call, column);
    return result;
}

#endif /* IGNIS_NO_TENSORS */

#endif /* IGNIS_COLLECTIVE_IMPLEMENTED */
#endif /* IGNIS_IMPLEMENTATION */

/*  IGNIS_TRACE_CALLS: functions that return a handle or put work on a stream first say where they are called. */
#ifdef IGNIS_TRACE_CALLS
#undef IGNIS__AT
#define IGNIS__AT(call) (ignis_call_site(__FILE__, __LINE__), call)
#define ignis_vmm_create(...) IGNIS__AT(ignis_vmm_create(__VA_ARGS__))
#define ignis_vmm_reserve(...) IGNIS__AT(ignis_vmm_reserve(__VA_ARGS__))
#define ignis_vmm_import(...) IGNIS__AT(ignis_vmm_import(__VA_ARGS__))
#define ignis_vmm_array(...) IGNIS__AT(ignis_vmm_array(__VA_ARGS__))
#define ignis_vmm_array_map(...) IGNIS__AT(ignis_vmm_array_map(__VA_ARGS__))
#define ignis_vmm_of_array(...) IGNIS__AT(ignis_vmm_of_array(__VA_ARGS__))
#define ignis_channel_serve(...) IGNIS__AT(ignis_channel_serve(__VA_ARGS__))
#define ignis_channel_accept(...) IGNIS__AT(ignis_channel_accept(__VA_ARGS__))
#define ignis_channel_accept_within(...) IGNIS__AT(ignis_channel_accept_within(__VA_ARGS__))
#define ignis_channel_connect(...) IGNIS__AT(ignis_channel_connect(__VA_ARGS__))
#define ignis_transport_create(...) IGNIS__AT(ignis_transport_create(__VA_ARGS__))
#define ignis_transport_import_handle(...) IGNIS__AT(ignis_transport_import_handle(__VA_ARGS__))
#define ignis_transport_recv_with_handle(...) IGNIS__AT(ignis_transport_recv_with_handle(__VA_ARGS__))
#define ignis_transport_recv(...) IGNIS__AT(ignis_transport_recv(__VA_ARGS__))
#define ignis_transport_recv_async(...) IGNIS__AT(ignis_transport_recv_async(__VA_ARGS__))
#define ignis_ipc_array(...) IGNIS__AT(ignis_ipc_array(__VA_ARGS__))
#define ignis_share_receive(...) IGNIS__AT(ignis_share_receive(__VA_ARGS__))
#define ignis_comm_init(...) IGNIS__AT(ignis_comm_init(__VA_ARGS__))
#define ignis_comm_split(...) IGNIS__AT(ignis_comm_split(__VA_ARGS__))
#define ignis_comm_shrink(...) IGNIS__AT(ignis_comm_shrink(__VA_ARGS__))
#define ignis_comm_shrink_without(...) IGNIS__AT(ignis_comm_shrink_without(__VA_ARGS__))
#define ignis_comm_grow(...) IGNIS__AT(ignis_comm_grow(__VA_ARGS__))
#define ignis_comm_init_all(...) IGNIS__AT(ignis_comm_init_all(__VA_ARGS__))
#define ignis_comm_split_all(...) IGNIS__AT(ignis_comm_split_all(__VA_ARGS__))
#define ignis_comm_shrink_all(...) IGNIS__AT(ignis_comm_shrink_all(__VA_ARGS__))
#define ignis_comm_all_reduce(...) IGNIS__AT(ignis_comm_all_reduce(__VA_ARGS__))
#define ignis_comm_reduce(...) IGNIS__AT(ignis_comm_reduce(__VA_ARGS__))
#define ignis_comm_broadcast(...) IGNIS__AT(ignis_comm_broadcast(__VA_ARGS__))
#define ignis_comm_all_gather(...) IGNIS__AT(ignis_comm_all_gather(__VA_ARGS__))
#define ignis_comm_reduce_scatter(...) IGNIS__AT(ignis_comm_reduce_scatter(__VA_ARGS__))
#define ignis_comm_all_to_all(...) IGNIS__AT(ignis_comm_all_to_all(__VA_ARGS__))
#define ignis_comm_send(...) IGNIS__AT(ignis_comm_send(__VA_ARGS__))
#define ignis_comm_recv(...) IGNIS__AT(ignis_comm_recv(__VA_ARGS__))
#define ignis_comm_send_recv(...) IGNIS__AT(ignis_comm_send_recv(__VA_ARGS__))
#define ignis_comm_barrier(...) IGNIS__AT(ignis_comm_barrier(__VA_ARGS__))
#ifndef IGNIS_NO_TENSORS
#define ignis_parallel_create(...) IGNIS__AT(ignis_parallel_create(__VA_ARGS__))
#define ignis_comm_all_reduce_forward(...) IGNIS__AT(ignis_comm_all_reduce_forward(__VA_ARGS__))
#define ignis_comm_all_reduce_backward(...) IGNIS__AT(ignis_comm_all_reduce_backward(__VA_ARGS__))
#define ignis_comm_all_gather_rows(...) IGNIS__AT(ignis_comm_all_gather_rows(__VA_ARGS__))
#define ignis_comm_reduce_scatter_rows(...) IGNIS__AT(ignis_comm_reduce_scatter_rows(__VA_ARGS__))
#define ignis_comm_slice_rows(...) IGNIS__AT(ignis_comm_slice_rows(__VA_ARGS__))
#define ignis_comm_all_gather_columns(...) IGNIS__AT(ignis_comm_all_gather_columns(__VA_ARGS__))
#define ignis_column_parallel_linear(...) IGNIS__AT(ignis_column_parallel_linear(__VA_ARGS__))
#define ignis_row_parallel_linear(...) IGNIS__AT(ignis_row_parallel_linear(__VA_ARGS__))
#define ignis_vocab_parallel_embedding(...) IGNIS__AT(ignis_vocab_parallel_embedding(__VA_ARGS__))
#define ignis_vocab_parallel_cross_entropy(...) IGNIS__AT(ignis_vocab_parallel_cross_entropy(__VA_ARGS__))
#define ignis_comm_clip_grad_norms(...) IGNIS__AT(ignis_comm_clip_grad_norms(__VA_ARGS__))
#endif
#endif
