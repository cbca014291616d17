/*  >>transport - arrays between devices and processes: VMM, IPC, peer copies, host memory

    Exports an array as a handle, imports it elsewhere; sends and receives. Each kind of transport is a row of a table.
    Descriptors travel through channels. Otherwise a handle has a named file in the private folder, which the first
    importer removes: a FIFO as lease, or a file with a copy.
    Uses: vmm, peer, channel, and the arrays and devices of ignis.h.
    Invariants: a lease is a pipe whose read end hangs up when no process uses the array any more.
    Locks: see transport.export. */
