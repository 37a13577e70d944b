# cython: language_level=3, boundscheck=False, wraparound=False
"""The client's own socket: the compiled equal of `py/sock.py`, which says what it is for.

Descriptors are dense (the kernel hands out the lowest free one), so `find` counts upwards and asks each for its peer;
only if that ends in a long gap does it read /proc/self/fd.
"""

from libc.errno cimport EBADF, errno
from libc.stdlib cimport atoi
from libc.string cimport memcmp, memcpy, memset

cdef extern from "<sys/socket.h>" nogil:
    ctypedef unsigned int socklen_t
    ctypedef unsigned short sa_family_t
    cdef struct sockaddr:
        sa_family_t sa_family
    cdef struct sockaddr_storage:
        sa_family_t ss_family
    int AF_INET
    int AF_INET6
    int SHUT_RDWR
    int getpeername(int fd, sockaddr *address, socklen_t *size)
    int getsockname(int fd, sockaddr *address, socklen_t *size)
    int c_shutdown "shutdown"(int fd, int how)
    int getsockopt(int fd, int level, int name, void *value, socklen_t *size)

cdef extern from "<netinet/tcp.h>" nogil:
    int TCP_INFO

cdef extern from "<netinet/in.h>" nogil:
    int IPPROTO_TCP
    cdef struct in_addr:
        unsigned int s_addr
    cdef struct sockaddr_in:
        unsigned short sin_port
        in_addr sin_addr
    cdef struct in6_addr:
        unsigned char s6_addr[16]
    cdef struct sockaddr_in6:
        unsigned short sin6_port
        in6_addr sin6_addr
    unsigned short ntohs(unsigned short port)

cdef extern from "<arpa/inet.h>" nogil:
    int inet_pton(int family, const char *text, void *address)

cdef extern from "<sys/ioctl.h>" nogil:
    int ioctl(int fd, unsigned long request, ...)

cdef extern from "<linux/sockios.h>" nogil:
    unsigned long SIOCOUTQ

cdef extern from "<dirent.h>" nogil:
    ctypedef struct DIR
    cdef struct dirent:
        char *d_name
    DIR *opendir(const char *path)
    dirent *readdir(DIR *directory)
    int closedir(DIR *directory)

# So many closed descriptors in a row, and counting on costs more than reading the directory.
cdef enum:
    GAP = 512
    ACKED_AT = 120  # offset of tcpi_bytes_acked in struct tcp_info

cdef struct Address:
    unsigned char ip[16]
    int port


def find(str peer, int local_port):
    cdef Address wanted
    cdef int fd = 0, gap = 0
    cdef int found = -1
    cdef DIR *directory
    cdef dirent *entry
    if not _parse(peer, &wanted):
        return -1
    while gap < GAP:
        if _is_it(fd, &wanted, local_port, &gap):
            return fd
        fd += 1
    directory = opendir("/proc/self/fd")
    if directory == NULL:
        return -1
    while found < 0:
        entry = readdir(directory)
        if entry == NULL:
            break
        if entry.d_name[0] != c'.' and atoi(entry.d_name) >= fd:
            if _is_it(atoi(entry.d_name), &wanted, local_port, &gap):
                found = atoi(entry.d_name)
    closedir(directory)
    return found


def queued(int fd):
    cdef int count = 0
    if ioctl(fd, SIOCOUTQ, &count) != 0:
        return -1
    return count


def acked(int fd):
    cdef unsigned char info[128]
    cdef unsigned long long count
    cdef socklen_t size = ACKED_AT + 8
    if getsockopt(fd, IPPROTO_TCP, TCP_INFO, info, &size) != 0 or size < ACKED_AT + 8:
        return -1
    memcpy(&count, info + ACKED_AT, 8)
    return count


def shutdown(int fd):
    cdef Address peer
    if _peer(fd, &peer):
        c_shutdown(fd, SHUT_RDWR)


def peer_matches(int fd, str peer):
    cdef Address wanted, actual
    if not _parse(peer, &wanted) or not _peer(fd, &actual):
        return False
    return wanted.port == actual.port and memcmp(wanted.ip, actual.ip, 16) == 0


cdef bint _is_it(int fd, const Address *wanted, int local_port, int *gap) noexcept:
    cdef Address address
    if not _peer(fd, &address):
        gap[0] = gap[0] + 1 if errno == EBADF else 0
        return False
    gap[0] = 0
    if wanted.port != address.port or memcmp(wanted.ip, address.ip, 16) != 0:
        return False
    return _local_port(fd) == local_port


cdef bint _peer(int fd, Address *out) noexcept:
    cdef sockaddr_storage storage
    cdef socklen_t size = sizeof(storage)
    if getpeername(fd, <sockaddr *>&storage, &size) != 0:
        return False
    return _unpack(&storage, out)


cdef int _local_port(int fd) noexcept:
    cdef sockaddr_storage storage
    cdef socklen_t size = sizeof(storage)
    cdef Address address
    if getsockname(fd, <sockaddr *>&storage, &size) != 0 or not _unpack(&storage, &address):
        return -1
    return address.port


cdef bint _unpack(const sockaddr_storage *storage, Address *out) noexcept:
    cdef const sockaddr_in *v4 = <const sockaddr_in *>storage
    cdef const sockaddr_in6 *v6 = <const sockaddr_in6 *>storage
    if storage.ss_family == AF_INET:
        _map_v4(&v4.sin_addr, out)
        out.port = ntohs(v4.sin_port)
        return True
    if storage.ss_family == AF_INET6:
        memcpy(out.ip, v6.sin6_addr.s6_addr, 16)
        out.port = ntohs(v6.sin6_port)
        return True
    return False


cdef void _map_v4(const void *v4, Address *out) noexcept:
    # A dual-stack listener sees IPv4 peers as ::ffff:a.b.c.d; both spellings are one address.
    memset(out.ip, 0, 10)
    out.ip[10] = out.ip[11] = 0xFF
    memcpy(out.ip + 12, v4, 4)


cdef bint _parse(str peer, Address *out) except -1:
    cdef in_addr v4
    host, colon, port = peer.rpartition(":")
    if not colon or not port.isascii() or not port.isdigit() or len(port) > 5:
        return False
    out.port = int(port)
    host = host.removeprefix("[").removesuffix("]").partition("%")[0]
    if not host.isascii() or "\0" in host:
        return False
    raw = host.encode("ascii")
    if ":" in host:
        return inet_pton(AF_INET6, raw, out.ip) == 1
    if inet_pton(AF_INET, raw, &v4) != 1:
        return False
    _map_v4(&v4, out)
    return True
