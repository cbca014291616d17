/* >>ops.fft - Fourier transforms --------------------------------------------------------------------------------

   A complex number is two neighbouring elements: a last dimension of 2, real part first.
   ON FOURIER TRANSFORMS has an example. */

typedef enum ignis_fft_norm {
    IGNIS_FFT_BACKWARD, /* inverse transforms are divided by the number of points */
    IGNIS_FFT_ORTHO,    /* all are divided by its square root */
    IGNIS_FFT_FORWARD   /* forward transforms are divided by it */
} ignis_fft_norm;

typedef struct ignis_fft_desc {
    int ndim;           /* the last dimensions that are transformed, 1 to 3 (1) */
    int64_t lengths[3]; /* points along each of them, the first one first; a signal is cut, or zeros follow it (0:
                           as many as it has; ignis_irfft, along the last one: 2 (m - 1)) */
    ignis_fft_norm norm;
} ignis_fft_desc;

/*  ignis_fft - discrete Fourier transform of complex signals: X(k) = sum over j of x(j) exp(-2 pi i j k / n);
    ignis_ifft - its inverse, with exp(+2 pi i j k / n)
    ignis_rfft - ignis_fft of real signals: the first n/2 + 1 numbers of the last dimension, which say the others;
    ignis_irfft - its inverse: real signals. It ignores the imaginary part of number 0, and of number n/2 of even n.
    As numpy.fft.fftn, ifftn, rfftn and irfftn over the last desc->ndim dimensions; desc may be null for one.
    Any length up to 2^29. Lengths whose prime factors are at most 13 take one pass over memory up to 16384 (f64:
    8192), and two or three above; others take two transforms of up to four times the length (Bluestein 1970).
    Shapes: [..., n, 2] for n points along each transformed dimension, [..., n] of real signals, [..., n/2 + 1, 2] of
    their spectra. Dimensions before are batches. Dtypes: f32 and f64, computed in themselves. The error is a few
    units in the last place of the largest values.
    Returns: the tensor, or no handle.
    Errors: FREED, ARGUMENT (desc->ndim, desc->norm, a negative length, never written to), SHAPE (too few dimensions,
    the last one is not 2, no points, more than 2^29), DTYPE, MEMORY, LIBRARY, COMPILE, CUDA.
    Ownership: as ignis_tensor_from_host.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_tensor ignis_fft(ignis_tensor x, const ignis_fft_desc *desc);
IGNIS_API ignis_tensor ignis_ifft(ignis_tensor x, const ignis_fft_desc *desc);
IGNIS_API ignis_tensor ignis_rfft(ignis_tensor x, const ignis_fft_desc *desc);
IGNIS_API ignis_tensor ignis_irfft(ignis_tensor x, const ignis_fft_desc *desc);

/*  ignis_complex_mul - products of complex numbers, element by element; conjugates: of a and the conjugates of b
    Shapes: a and b [..., 2]; the others broadcast by NumPy's rules, by copies (ignis_expand). Dtypes: f16, bf16, f32,
    f64; f16 and bf16 are rounded once, at the end.
    Returns: the tensor, or no handle.
    Errors: FREED, SHAPE (the last dimension is not 2, others do not broadcast), DTYPE, DEVICE, ARGUMENT (never written
    to), MEMORY, LIBRARY, COMPILE, CUDA.
    Ownership: as ignis_tensor_from_host.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_tensor ignis_complex_mul(ignis_tensor a, ignis_tensor b, bool conjugates);

/*  ignis_fft_conv - convolution of real signals over the last ndim dimensions (1 to 3), by ignis_rfft:
    y(i) = sum over j of x(j) w(i - j)
    All points where signals overlap (mode "full" of NumPy): n + m - 1 for n of x and m of w. It pays for long w: for
    short ones use ignis_conv1d or ignis_conv2d, which do not turn w around. Dimensions before broadcast as in
    ignis_complex_mul. Dtypes: f32 and f64. The error of each value is relative to the largest ones.
    Returns: the tensor, or no handle.
    Errors: as ignis_rfft and ignis_complex_mul; ARGUMENT (ndim).
    Ownership: as ignis_tensor_from_host.
    Threads: any. Streams: queued on the current stream. */
IGNIS_API ignis_tensor ignis_fft_conv(ignis_tensor x, ignis_tensor w, int ndim);
