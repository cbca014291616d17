// SPDX-License-Identifier: MIT
/* Names that other headers take away: Windows' (rpcndr.h, windef.h, wingdi.h, winerror.h, math.h), <sys/sysmacros.h>, <complex.h>, <ctype.h> of
   old systems and X11. Included first, they show which names the headers of Ignis cannot have. */
#define small char
#define hyper long long
#define near
#define far
#define NEAR
#define FAR
#define IN
#define OUT
#define OPTIONAL
#define CONST const
#define VOID void
#define interface struct
#define ERROR 0
#define NO_ERROR 0
#define STRICT 1
#define DELETE 1
#define IGNORE 0
#define INFINITE 1
#define ABSOLUTE 1
#define RELATIVE 2
#define TRANSPARENT 1
#define OPAQUE 2
#define TRUE 1
#define FALSE 0
#define BOOL int
#define BYTE unsigned char
#define CALLBACK
#define PASCAL
#define cdecl
#define pascal
#define assume(x)
#define min(a, b) (((a) < (b)) ? (a) : (b))
#define max(a, b) (((a) > (b)) ? (a) : (b))
#define CreateEvent CreateEventA
#define GetMessage GetMessageA
#define Yield()
#define DOMAIN 1
#define SING 2
#define OVERFLOW 3
#define UNDERFLOW 4
#define PLOSS 6
#define major(x) 0
#define minor(x) 0
#define makedev(x, y) 0
#define unix 1
#define linux 1
#define I 1
#define _B 1
#define _C 1
#define _L 1
#define _N 1
#define _P 1
#define _S 1
#define _U 1
#define _X 1
#define B0 0
#define ECHO 1
#define None 0
#define Bool int
#define Status int
#define Success 0
#define True 1
#define False 0
#define Always 2
