// SPDX-License-Identifier: MIT
/*  unistd.h - for compilers of Microsoft's kind: what the tests use of it is in ../posix.h */
