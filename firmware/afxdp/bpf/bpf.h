/* What the program needs of the kernel's interface (linux/bpf.h, linux/types.h), so that building it takes a compiler
 * and no headers, and gives the same bytes on every machine. Numbers are ABI. */
#pragma once

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

struct xdp_md {
	u32 data;
	u32 data_end;
	u32 data_meta;
	u32 ingress_ifindex;
	u32 rx_queue_index;
	u32 egress_ifindex;
};

enum { XDP_PASS = 2 };
enum { BPF_MAP_TYPE_ARRAY = 2, BPF_MAP_TYPE_LRU_HASH = 9, BPF_MAP_TYPE_XSKMAP = 17 };
enum { BPF_ANY = 0 };
enum { BPF_F_MMAPABLE = 1 << 10 };

static void *(*const bpf_map_lookup_elem)(void *map, const void *key) = (void *)1;
static long (*const bpf_map_update_elem)(void *map, const void *key, const void *value, u64 flags) = (void *)2;
static long (*const bpf_map_delete_elem)(void *map, const void *key) = (void *)3;
static u64 (*const bpf_ktime_get_ns)(void) = (void *)5;
static long (*const bpf_redirect_map)(void *map, u64 key, u64 flags) = (void *)51;

#define SEC(name) __attribute__((section(name), used))
#define INLINE static inline __attribute__((always_inline))
/* Workers of a map's definition, read from its type information. */
#define NUMBER(name, value) int(*name)[value]
#define TYPE(name, type) type *name
