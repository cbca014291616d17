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
#endif
