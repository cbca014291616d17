// SPDX-License-Identifier: MIT
/* Names that other headers take away: Windows' (rpcndr.h, windef.h, wingdi.h, winerror.h, math.h), <sys/sysmacros.h>,
   <complex.h>, <ctype.h> of old systems and X11; and Qt's, Unreal's, Apple's and common ones. Included first, they show
   which names the headers of Ignis cannot have. */
#ifndef __cplusplus /* in C++ these are in the way of the system's own headers */
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
#endif
#define signals public
#define slots
#define emit
#define foreach(variable, container) for (variable : container)
#define forever for (;;)
#define check(expression)
#define check_noerr(error)
#define verify(expression)
#define require(condition, label)
#define ensure(expression) (expression)
#define checkf(expression, ...)
#define TEXT(text) L##text
#define PI 3.14159
#define nil 0
#define Nil 0
#define YES 1
#define NO 0
#define BIT(n) (1u << (n))
#define ARRAY_SIZE(array) (sizeof(array) / sizeof *(array))
#define countof(array) (sizeof(array) / sizeof *(array))
#define MIN(a, b) ((a) < (b) ? (a) : (b))
#define MAX(a, b) ((a) > (b) ? (a) : (b))
#define likely(x) (x)
#define unlikely(x) (x)
#define PAGE_SIZE 4096
#define Above 0
#define Below 1
#define Complex 0
#define Unsorted 0
#define Convex 2
#define CursorShape 0
#define FocusIn 9
#define FocusOut 10
#define KeyPress 2
#define KeyRelease 3
#define GrayScale 1
#define StaticColor 2
#define DEBUG 1
#define STATUS_SUCCESS 0
#define DIFFERENCE 11
#define Q_OBJECT
#define until(x) while (!(x))
#define defer(x)
