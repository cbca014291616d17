// SPDX-License-Identifier: MIT
/*  fault.cpp - faults: names the thread and block of an invalid access, and ends the launch

    A signal handler decides by the address and the context whether the kernel or the host program has
    faulted.
*/

static struct sigaction previous_action[64];

#if defined(__x86_64__)
/* Tells whether a fault looks misaligned. A general protection fault has no address. Either the address was
   not canonical, then some register has it, or an instruction needs an aligned address. */
static bool looks_misaligned(const siginfo_t *info, const void *machine)
{
    const ucontext_t *u = (const ucontext_t *)machine;
    if (info->si_code != SI_KERNEL)
        return false;
    for (int i = 0; i <= REG_RCX; i++) {
        int64_t v = u->uc_mcontext.gregs[i];
        if (v >> 47 != 0 && v >> 47 != -1)
            return false;
    }
    return true;
}
#else
static bool looks_misaligned(const siginfo_t *info, const void *)
{
    return info->si_signo == SIGBUS && info->si_code == BUS_ADRALN;
}
#endif

static int say_fault(sim_text *t, const worker *w, const siginfo_t *info, const void *machine)
{
    const char *address = (const char *)info->si_addr;
    const char *guard = w->running->mapping;
    if (info->si_signo == SIGFPE) {
        say(t, "integer division by zero (or of the smallest integer by -1)");
        return SIM_LAUNCH_FAILED;
    }
    if (info->si_signo == SIGILL) {
        say(t, "illegal instruction");
        return SIM_LAUNCH_FAILED;
    }
    if (guard && address >= guard && address < guard + GUARD_SIZE) {
        say(t, "stack overflow: local arrays or recursion need more than %zu bytes", w->running->context.stack_size);
        return SIM_LAUNCH_FAILED;
    }
    if (looks_misaligned(info, machine)) {
        say(t, "misaligned address: a vector access must be aligned to its size");
        return SIM_MISALIGNED_ADDRESS;
    }
    if (info->si_signo == SIGSEGV && info->si_code == SI_KERNEL) {
        say(t, "illegal address: not a possible pointer at all (uninitialised?)");
        return SIM_ILLEGAL_ADDRESS;
    }
    char nearest[256] = "";
    sim_address_describe(address, nearest, sizeof nearest);
    say(t, "illegal address %p%s%s", (const void *)address, nearest[0] ? ": " : "", nearest);
    return SIM_ILLEGAL_ADDRESS;
}

/* Handles a fault on the signal stack. A fault of kernel code ends the launch: it switches to the OS thread's
   own context and never returns. Any other fault belongs to the host program. */
static void on_fault(int number, siginfo_t *info, void *machine)
{
    worker *w = this_worker;
    if (w && w->running) {
        sigset_t faults;
        sigemptyset(&faults);
        sigaddset(&faults, number);
        pthread_sigmask(SIG_UNBLOCK, &faults, NULL);
        sim_text t = {w->text, sizeof w->text};
        say_where(&t, w);
        w->failure_is_fault = true;
        give_up(w, say_fault(&t, w, info, machine), NULL, sim_place{NULL, 0});
    }
    const struct sigaction *previous = &previous_action[number];
    if (previous->sa_flags & SA_SIGINFO)
        previous->sa_sigaction(number, info, machine);
    else if (previous->sa_handler != SIG_DFL && previous->sa_handler != SIG_IGN)
        previous->sa_handler(number);
    else
        sigaction(number, previous, NULL); /* the instruction runs again and gets the default action */
}

static void install_fault_handlers(void)
{
    static const int numbers[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL};
    struct sigaction action;
    if (settings.sanitized)
        return; /* the sanitizer reports better */
    memset(&action, 0, sizeof action);
    action.sa_sigaction = on_fault;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    for (unsigned i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
        sigaction(numbers[i], &action, &previous_action[numbers[i]]);
}
