// SPDX-License-Identifier: MIT
/*  gpu_opengl.c - buffers of a real OpenGL as arrays: `make check-graphics`

    Headless: OpenGL has a context of EGL on the device that CUDA uses (EGL_EXT_platform_device); libEGL.so.1 is opened
    at run time, and its headers (libegl-dev, libgl-dev) are needed, but no display. OpenGL writes and kernels read, and
    the other way round.

    The simulator knows no real OpenGL: there the context is made, where Mesa is installed, OpenGL's own part runs, and
    CUDA has to refuse. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "array.h"

#define EGL_NO_X11
#define EGL_EGLEXT_PROTOTYPES 0
#include <EGL/egl.h>
#include <EGL/eglext.h>
#include <GL/gl.h>
#include <GL/glext.h>

#include <dlfcn.h>

#ifndef EGL_CUDA_DEVICE_NV
#define EGL_CUDA_DEVICE_NV 0x323A
#endif

static struct {
    EGLDisplay display;
    EGLContext context;
    int cuda; /* the device of CUDA; -1: another OpenGL */
    EGLBoolean(EGLAPIENTRY *make_current)(EGLDisplay, EGLSurface, EGLSurface, EGLContext);
    EGLBoolean(EGLAPIENTRY *destroy)(EGLDisplay, EGLContext);
    EGLBoolean(EGLAPIENTRY *terminate)(EGLDisplay);
    const GLubyte *(APIENTRY *string)(GLenum);
    GLenum(APIENTRY *error)(void);
    PFNGLGENBUFFERSPROC gen;
    PFNGLDELETEBUFFERSPROC del;
    PFNGLBINDBUFFERPROC bind;
    PFNGLBUFFERDATAPROC data;
    PFNGLBUFFERSUBDATAPROC write;
    PFNGLGETBUFFERSUBDATAPROC read;
    PFNGLCOPYBUFFERSUBDATAPROC copy;
    PFNGLGETUNSIGNEDBYTEI_VEXTPROC bytes;
} gl;

/*  Casts between functions and void * are what ISO C does not have. */
#define FIND(find, into, name)                            \
    do {                                                  \
        void (*found)(void) = (void (*)(void))find(name); \
        memcpy(&(into), &found, sizeof found);            \
    } while (0)

/*  The device of EGL that is CUDA's device 0; on the simulator the first one. */
static EGLDeviceEXT choose_device(PFNEGLQUERYDEVICESEXTPROC list, PFNEGLQUERYDEVICEATTRIBEXTPROC ask)
{
    EGLDeviceEXT devices[32];
    EGLint count = 0, i;
    EGLAttrib number;
    if (!list(32, devices, &count) || count == 0)
        return EGL_NO_DEVICE_EXT;
    for (i = 0; i < count; i++)
        if (ask(devices[i], EGL_CUDA_DEVICE_NV, &number) && number >= 0 && number < ignis_device_count()) {
            gl.cuda = (int)number;
            return devices[i];
        }
    gl.cuda = -1;
    return test_is_simulator() ? devices[0] : EGL_NO_DEVICE_EXT;
}

/*  Null, or why there is no OpenGL to test with. */
static const char *opengl_begin(void)
{
    static const EGLint wanted[] = {EGL_RENDERABLE_TYPE, EGL_OPENGL_BIT, EGL_SURFACE_TYPE, EGL_PBUFFER_BIT, EGL_NONE};
    PFNEGLQUERYDEVICESEXTPROC list;
    PFNEGLQUERYDEVICEATTRIBEXTPROC ask;
    PFNEGLGETPLATFORMDISPLAYEXTPROC get_display;
    PFNEGLINITIALIZEPROC initialize;
    PFNEGLBINDAPIPROC bind_api;
    PFNEGLCHOOSECONFIGPROC choose;
    PFNEGLCREATECONTEXTPROC create;
    PFNEGLGETPROCADDRESSPROC find;
    EGLDeviceEXT device;
    EGLConfig config = NULL;
    EGLint count = 0;
    void *library = dlopen("libEGL.so.1", RTLD_NOW | RTLD_LOCAL),
         *entry = library ? dlsym(library, "eglGetProcAddress") : NULL;
    if (!entry)
        return "there is no libEGL.so.1";
    memcpy(&find, &entry, sizeof find);
#define FIND_EGL(into, name) FIND(find, into, name)
    FIND_EGL(list, "eglQueryDevicesEXT");
    FIND_EGL(ask, "eglQueryDeviceAttribEXT");
    FIND_EGL(get_display, "eglGetPlatformDisplayEXT");
    FIND_EGL(initialize, "eglInitialize");
    FIND_EGL(bind_api, "eglBindAPI");
    FIND_EGL(choose, "eglChooseConfig");
    FIND_EGL(create, "eglCreateContext");
    FIND_EGL(gl.make_current, "eglMakeCurrent");
    FIND_EGL(gl.destroy, "eglDestroyContext");
    FIND_EGL(gl.terminate, "eglTerminate");
    if (!list || !ask || !get_display)
        return "EGL cannot list devices";
    device = choose_device(list, ask);
    if (device == EGL_NO_DEVICE_EXT)
        return "no device of EGL is one of CUDA's";
    gl.display = get_display(EGL_PLATFORM_DEVICE_EXT, device, NULL);
    if (gl.display == EGL_NO_DISPLAY || !initialize(gl.display, NULL, NULL) || !bind_api(EGL_OPENGL_API))
        return "EGL does not open the device";
    (void)choose(gl.display, wanted, &config, 1, &count);
    gl.context = create(gl.display, count ? config : NULL, EGL_NO_CONTEXT, NULL);
    if (gl.context == EGL_NO_CONTEXT || !gl.make_current(gl.display, EGL_NO_SURFACE, EGL_NO_SURFACE, gl.context))
        return "EGL makes no OpenGL context without a surface";
    FIND_EGL(gl.string, "glGetString");
    FIND_EGL(gl.error, "glGetError");
    FIND_EGL(gl.gen, "glGenBuffers");
    FIND_EGL(gl.del, "glDeleteBuffers");
    FIND_EGL(gl.bind, "glBindBuffer");
    FIND_EGL(gl.data, "glBufferData");
    FIND_EGL(gl.write, "glBufferSubData");
    FIND_EGL(gl.read, "glGetBufferSubData");
    FIND_EGL(gl.copy, "glCopyBufferSubData");
    FIND_EGL(gl.bytes, "glGetUnsignedBytei_vEXT");
    if (!gl.copy || !gl.read)
        return "this OpenGL has no glCopyBufferSubData";
    printf("OpenGL: %s, %s, is device %d of CUDA\n", (const char *)gl.string(GL_VENDOR),
           (const char *)gl.string(GL_VERSION), gl.cuda);
    return NULL;
}

static void opengl_end(void)
{
    if (gl.context) {
        gl.make_current(gl.display, EGL_NO_SURFACE, EGL_NO_SURFACE, EGL_NO_CONTEXT);
        gl.destroy(gl.display, gl.context);
    }
    if (gl.display)
        gl.terminate(gl.display);
    memset(&gl, 0, sizeof gl);
}

#define OPENGL_SETUP()                           \
    do {                                         \
        const char *why;                         \
        SETUP(NULL);                             \
        if ((why = opengl_begin()) != NULL) {    \
            opengl_end();                        \
            SKIP(why);                           \
        }                                        \
        if (gl.cuda >= 0)                        \
            CHECK_OK(ignis_device_use(gl.cuda)); \
    } while (0)

/*  What needs an OpenGL that CUDA knows. */
#define OPENGL_OF_CUDA()                                                                \
    do {                                                                                \
        if (gl.cuda < 0) {                                                              \
            opengl_end();                                                               \
            SKIP("OpenGL ran, but the simulator cannot map the buffers of a real one"); \
        }                                                                               \
    } while (0)

enum { COUNT = 10007 };

static GLuint make_buffer(int32_t first)
{
    static int32_t values[COUNT];
    GLuint name = 0;
    int i;
    for (i = 0; i < COUNT; i++)
        values[i] = first + i;
    gl.gen(1, &name);
    gl.bind(GL_ARRAY_BUFFER, name);
    gl.data(GL_ARRAY_BUFFER, sizeof values, values, GL_DYNAMIC_DRAW);
    CHECK_INT(gl.error(), GL_NO_ERROR);
    return name;
}

/*  The buffer has first, first + step, ... as OpenGL reads it. */
static void check_buffer(GLuint name, int32_t first, int32_t step)
{
    static int32_t values[COUNT];
    int i, wrong = 0;
    gl.bind(GL_ARRAY_BUFFER, name);
    gl.read(GL_ARRAY_BUFFER, 0, sizeof values, values);
    CHECK_INT(gl.error(), GL_NO_ERROR);
    for (i = 0; i < COUNT; i++)
        wrong += values[i] != first + i * step;
    CHECK_INT(wrong, 0);
}

/*  OpenGL's own part, also without CUDA's. */
TEST(opengl_reads_and_writes)
{
    GLuint a, b;
    OPENGL_SETUP();
    a = make_buffer(5), b = make_buffer(0);
    gl.bind(GL_COPY_READ_BUFFER, a);
    gl.bind(GL_COPY_WRITE_BUFFER, b);
    gl.copy(GL_COPY_READ_BUFFER, GL_COPY_WRITE_BUFFER, 0, 0, COUNT * 4);
    check_buffer(b, 5, 1);
    if (gl.cuda < 0) {
        CHECK_FAILS(ignis_gl_register(a, IGNIS_GL_READ_WRITE), IGNIS_ERROR_CUDA, IGNIS_DIAG_CUDA_CALL);
        CHECK_MESSAGE_HAS("no OpenGL context");
    }
    gl.del(1, &a), gl.del(1, &b);
    opengl_end();
}

TEST(opengl_and_kernels_take_turns)
{
    ignis_gl_buffer buffer;
    ignis_array array, ones;
    GLuint name, other;
    int32_t round;
    OPENGL_SETUP();
    OPENGL_OF_CUDA();
    name = make_buffer(0), other = make_buffer(0);
    buffer = ignis_gl_register(name, IGNIS_GL_READ_WRITE);
    ones = make(IGNIS_SHAPE(COUNT), IGNIS_I32);
    CHECK_OK(ignis_array_fill(ones, 1.0));
    for (round = 0; round < 5; round++) {
        array = ignis_gl_map(buffer, IGNIS_I32, (ignis_shape){0});
        CHECK_INT(ignis_array_numel(array), COUNT);
        CHECK_INT(info_of(array).device, gl.cuda);
        CHECK_OK(ignis_array_add(array, array, ones));
        CHECK_OK(ignis_gl_unmap(buffer));
        gl.bind(GL_COPY_READ_BUFFER, name); /* OpenGL's work comes after the kernel's, without a wait */
        gl.bind(GL_COPY_WRITE_BUFFER, other);
        gl.copy(GL_COPY_READ_BUFFER, GL_COPY_WRITE_BUFFER, 0, 0, COUNT * 4);
        check_buffer(other, 2 * round + 1, 1);
        array = ignis_gl_map(buffer, IGNIS_I32, IGNIS_SHAPE(COUNT));
        CHECK_OK(ignis_array_add(array, array, ones));
        CHECK_OK(ignis_gl_unmap(buffer));
        check_buffer(name, 2 * round + 2, 1);
    }
    CHECK_OK(ignis_gl_unregister(buffer));
    drop(ones);
    gl.del(1, &name), gl.del(1, &other);
    opengl_end();
}

TEST(kernels_read_what_opengl_writes)
{
    ignis_gl_buffer buffer;
    ignis_array array;
    void *stream;
    GLuint name;
    int32_t value = -3;
    OPENGL_SETUP();
    OPENGL_OF_CUDA();
    name = make_buffer(100);
    buffer = ignis_gl_register(name, IGNIS_GL_READ);
    stream = ignis_stream_create(NULL);
    CHECK_OK(ignis_stream_use(stream));
    gl.bind(GL_ARRAY_BUFFER, name);
    gl.write(GL_ARRAY_BUFFER, 4 * (COUNT - 1), 4, &value);
    array = ignis_gl_map(buffer, IGNIS_I32, IGNIS_SHAPE(COUNT));
    CHECK_OK(ignis_stream_use(NULL));
    value = 0;
    {
        ignis_array last = ignis_array_slice(array, 0, COUNT - 1, 1);
        CHECK_OK(ignis_array_to_host(last, &value, IGNIS_I32, 1)); /* on another stream than it was mapped on */
        CHECK_INT(value, -3);
        CHECK_STATUS(ignis_gl_unmap(buffer), IGNIS_ERROR_CONTRACT, IGNIS_DIAG_GL_BUFFER_USED);
        drop(last);
    }
    CHECK_STATUS(ignis_gl_unregister(buffer), IGNIS_ERROR_ARGUMENT, IGNIS_DIAG_GL_BUFFER_STATE);
    CHECK_OK(ignis_gl_unmap(buffer));
    CHECK_OK(ignis_gl_unregister(buffer));
    CHECK_OK(ignis_stream_free(stream));
    gl.del(1, &name);
    opengl_end();
}

TEST(the_uuid_is_that_of_cuda)
{
    unsigned char uuid[GL_UUID_SIZE_EXT];
    OPENGL_SETUP();
    OPENGL_OF_CUDA();
    if (!gl.bytes) {
        opengl_end();
        SKIP("this OpenGL has no GL_EXT_memory_object");
    }
    memset(uuid, 0, sizeof uuid);
    gl.bytes(GL_DEVICE_UUID_EXT, 0, uuid);
    CHECK_INT(ignis_device_find(uuid, NULL), gl.cuda);
    opengl_end();
}

int main(int argc, char **argv) { return test_run(argc, argv); }
