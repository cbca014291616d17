#pragma once
/*  Fourier transforms of signals in memory. A signal is one of:

        COMPLEX     complex numbers
        REAL        real numbers
        PAIRS       real numbers, of which two are one complex number: a real transform of even length 2 N is
                    a complex one of length N
        MERGED      the first half of the spectrum of a real signal of even length 2 N: N + 1 complex numbers,
                    which are made of, or become, the N numbers of the transform of its pairs
        HERMITIAN   the same of a real signal of odd length N: (N + 1) / 2 complex numbers

    An inverse transform exchanges real and imaginary parts before and after a forward one. */
enum { IGNIS__FFT_COMPLEX, IGNIS__FFT_REAL, IGNIS__FFT_PAIRS, IGNIS__FFT_MERGED, IGNIS__FFT_HERMITIAN };

/*  How a pass reads and writes. CHIRP: numbers are multiplied by those of Bluestein's algorithm. SWAP_LAST: parts are
    exchanged once more after that. PACKED: of PAIRS, at even addresses. */
enum {
    IGNIS__FFT_SWAP_IN = 1,
    IGNIS__FFT_CHIRP_IN = 2,
    IGNIS__FFT_SWAP_OUT = 4,
    IGNIS__FFT_CHIRP_OUT = 8,
    IGNIS__FFT_SWAP_LAST = 16,
    IGNIS__FFT_PACKED_IN = 32,
    IGNIS__FFT_PACKED_OUT = 64
};

/*  How signals are stored. A signal has the indices a, b and c, of which a is the fastest. Element j of a transform is
    number a * first_a + b * first_b + j * step of the signal. */
typedef struct ignis__fft_side {
    long long a, b, c; /* numbers of memory between signals; real ones in REAL and PAIRS, else complex ones */
    long long stride;  /* between elements of a signal; 1, but for COMPLEX */
    int first_a, first_b, step;
    int length; /* numbers of a signal in memory: elements from there on are read as 0, and not written */
} ignis__fft_side;
IGNIS__ASSERT_SIZE(ignis__fft_side, 48);

typedef struct ignis__fft_params {
    IGNIS__POINTER(void) out;
    IGNIS__POINTER(const void) in;
    IGNIS__POINTER(const void)
    chirp, filter; /* complex numbers of Bluestein's algorithm; results are times the filter */
    ignis__fft_side from, to;
    long long count_a, turn;           /* turn: results are multiplied by exp(-2 pi i a k / turn); 0: they are not */
    double scale, inner;               /* inner: of numbers inside a MERGED or HERMITIAN spectrum */
    int count_b, tiles_a, points, how; /* points: elements of the whole transform */
} ignis__fft_params;
IGNIS__ASSERT_SIZE(ignis__fft_params, 176);
