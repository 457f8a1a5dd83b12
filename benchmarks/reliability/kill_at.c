/* Counts the calls that change files below $KILL_DIR, in all processes together, and kills the process of one of them.

   LD_PRELOAD this. $KILL_COUNT names a file of 512 zero bytes that the processes share: the number of calls, then the
   name and path of the one before which a process got SIGKILL, number $KILL_AT (from 1; 0 kills none). That call, if
   it is write or pwrite, still writes half of its bytes, so that the file is torn. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

static const char *folder;
static long at;
static struct { _Atomic long calls; char call[504]; } *count;

__attribute__((constructor)) static void begin(void) {
  const char *name = getenv("KILL_COUNT"), *number = getenv("KILL_AT");
  int file = name ? open(name, O_RDWR | O_CLOEXEC) : -1;
  if (file < 0) return;
  void *shared = mmap(NULL, sizeof *count, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (shared == MAP_FAILED) abort();
  close(file);
  at = number ? atol(number) : 0;
  folder = getenv("KILL_DIR");
  count = shared;
}

/* Count a call on a path, relative to a descriptor, or on the descriptor itself (path NULL): is it number `at`? */
static int last(const char *call, int descriptor, const char *path) {
  char link[64], place[4096] = "";
  if (!count) return 0;
  if (!path || path[0] != '/') {
    if (descriptor == AT_FDCWD) snprintf(link, sizeof link, "/proc/self/cwd");
    else snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    ssize_t length = readlink(link, place, sizeof place - 1);
    if (length < 0) return 0;
    place[length] = 0;
    if (path) snprintf(place + length, sizeof place - length, "/%s", path);
    path = place;
  }
  if (strncmp(path, folder, strlen(folder)) || ++count->calls != at) return 0;
  snprintf(count->call, sizeof count->call, "%s %.400s", call, path);
  return 1;
}

static void end(void) { kill(getpid(), SIGKILL); }

#define CALL(type, name, arguments, values, descriptor, path)                                   \
  type name arguments {                                                                         \
    static type(*usual) arguments;                                                              \
    if (!usual) usual = dlsym(RTLD_NEXT, #name);                                                \
    if (last(#name, descriptor, path)) end();                                                          \
    return usual values;                                                                        \
  }
CALL(int, rename, (const char *a, const char *b), (a, b), AT_FDCWD, b)
CALL(int, renameat, (int d, const char *a, int e, const char *b), (d, a, e, b), e, b)
CALL(int, renameat2, (int d, const char *a, int e, const char *b, unsigned f), (d, a, e, b, f), e, b)
CALL(int, link, (const char *a, const char *b), (a, b), AT_FDCWD, b)
CALL(int, symlink, (const char *a, const char *b), (a, b), AT_FDCWD, b)
CALL(int, unlink, (const char *a), (a), AT_FDCWD, a)
CALL(int, unlinkat, (int d, const char *a, int f), (d, a, f), d, a)
CALL(int, rmdir, (const char *a), (a), AT_FDCWD, a)
CALL(int, mkdir, (const char *a, mode_t m), (a, m), AT_FDCWD, a)
CALL(int, mkdirat, (int d, const char *a, mode_t m), (d, a, m), d, a)
CALL(int, fsync, (int d), (d), d, NULL)
CALL(int, fdatasync, (int d), (d), d, NULL)
CALL(int, ftruncate64, (int d, off64_t n), (d, n), d, NULL)
CALL(ssize_t, writev, (int d, const struct iovec *v, int n), (d, v, n), d, NULL)
CALL(ssize_t, sendfile64, (int d, int s, off64_t *o, size_t n), (d, s, o, n), d, NULL)
CALL(ssize_t, copy_file_range, (int s, off64_t *o, int d, off64_t *p, size_t n, unsigned f), (s, o, d, p, n, f), d, NULL)

#define WRITE(name, arguments, values, half)                                                    \
  ssize_t name arguments {                                                                      \
    static ssize_t(*usual) arguments;                                                           \
    if (!usual) usual = dlsym(RTLD_NEXT, #name);                                                \
    if (last(#name, d, NULL)) usual half, end();                                                       \
    return usual values;                                                                        \
  }
WRITE(write, (int d, const void *b, size_t n), (d, b, n), (d, b, n / 2))
WRITE(pwrite64, (int d, const void *b, size_t n, off64_t o), (d, b, n, o), (d, b, n / 2, o))

#define OPEN(name, descriptor, parameters, ...)                                                 \
  int name(parameters, int flags, ...) {                                                        \
    static int (*usual)(parameters, int, ...);                                                  \
    va_list more;                                                                               \
    va_start(more, flags);                                                                      \
    mode_t mode = flags & (O_CREAT | __O_TMPFILE) ? va_arg(more, mode_t) : 0;                   \
    va_end(more);                                                                               \
    if (!usual) usual = dlsym(RTLD_NEXT, #name);                                                \
    if ((flags & (O_WRONLY | O_RDWR | O_CREAT | O_TRUNC)) && last(#name, descriptor, path)) end();     \
    return usual(__VA_ARGS__, flags, mode);                                                     \
  }
#define COMMA ,
OPEN(open, AT_FDCWD, const char *path, path)
OPEN(open64, AT_FDCWD, const char *path, path)
OPEN(openat, d, int d COMMA const char *path, d, path)
OPEN(openat64, d, int d COMMA const char *path, d, path)
