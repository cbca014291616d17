/* >>ops - operations on tensors, in families --------------------------------------------------------------------

   Operations make new tensors, which belong to the current scope; inputs keep their values. All inputs of
   one call are on one device and, unless it says otherwise, of one dtype: f16, bf16, f32 or f64. Each is
   recorded for ignis_backward when an input requires a gradient. f16 and bf16 are computed in f32 and
   rounded once, at the end. */
