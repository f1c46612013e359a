/* Which frames leave the kernel's path for the engines. All others, and all while the process that runs the engines is
 * gone or hangs, go on to the bridge behind (XDP_PASS).
 *
 * Taken are, when the process has given sign of life lately and the frame goes from one of the two ports to the
 * other:
 *   network port: frames whose type of service is the mark of compressed frames or a rule's;
 *   host port: frames with the mark; UDP with a rule's type of service; TCP with a rule's type of service on the queue
 *   whose socket got the connection's SYN; every SYN.
 *
 * Connections and queues. A flow table belongs to a queue, but a host may move a connection to another queue (Linux
 * does when it sends after a time-out). `connections` says which queue has a connection; elsewhere it goes untouched.
 * A SYN that the engine does not get ends what is known of its connection, so that an old start is never applied to
 * new bytes. */
#include "bpf.h"

#define QUEUES 64
enum port { HOST, NETWORK };

/* What userspace says of a type of service, by port. */
enum action {
	TAKE = 1,       /* always */
	CONNECTION = 2, /* UDP; TCP where the connection is known */
	OPEN = 4,       /* with CONNECTION: a connection is known from its first frame on, SYN or not */
};

/* Sockets, by port and queue. */
struct {
	NUMBER(type, BPF_MAP_TYPE_XSKMAP);
	NUMBER(max_entries, 2 * QUEUES);
	TYPE(key, u32);
	TYPE(value, u32);
} sockets SEC(".maps");

/* When the thread behind a socket last gave sign of life (CLOCK_MONOTONIC, ns), by port and queue. */
struct {
	NUMBER(type, BPF_MAP_TYPE_ARRAY);
	NUMBER(max_entries, 2 * QUEUES);
	NUMBER(map_flags, BPF_F_MMAPABLE);
	TYPE(key, u32);
	TYPE(value, u64);
} beats SEC(".maps");

/* `enum action`s, by port and type of service. */
struct {
	NUMBER(type, BPF_MAP_TYPE_ARRAY);
	NUMBER(max_entries, 2 * 256);
	NUMBER(map_flags, BPF_F_MMAPABLE);
	TYPE(key, u32);
	TYPE(value, u64);
} actions SEC(".maps");

/* Frames that stay with the bridge though their type of service asks for an engine... */
enum reason {
	STALE,     /* no sign of life */
	UNKNOWN,   /* TCP whose connection is not known, or known on another queue */
	ELSEWHERE, /* another destination than the other port */
	REASONS,
};
/* Counts by port, queue and reason: a queue is one CPU's at a time. */
struct {
	NUMBER(type, BPF_MAP_TYPE_ARRAY);
	NUMBER(max_entries, 2 * QUEUES * REASONS);
	NUMBER(map_flags, BPF_F_MMAPABLE);
	TYPE(key, u32);
	TYPE(value, u64);
} kept SEC(".maps");

/* Behind which port a MAC address is, as `enum port`, or neither. The bridge knows, but does not tell programs: this is
 * learned from the frames that come in, and userspace corrects it by the bridge's table. */
#define NEITHER 2
struct {
	NUMBER(type, BPF_MAP_TYPE_LRU_HASH);
	NUMBER(max_entries, 4096);
	TYPE(key, u64);
	TYPE(value, u64);
} stations SEC(".maps");

/* One direction of a TCP connection of the host. */
struct connection {
	u32 source[4], destination[4];
	u16 ports[2];
	u16 vlans[2]; /* outer first; the top bit of the first says IPv6 */
};
struct owner {
	u32 queue;
	u32 isn;
	u32 started; /* whether an engine got tagged payload of it */
};
struct {
	NUMBER(type, BPF_MAP_TYPE_LRU_HASH);
	NUMBER(max_entries, 65536);
	TYPE(key, struct connection);
	TYPE(value, struct owner);
} connections SEC(".maps");

/* Longer without a sign of life, and frames go to the bridge. */
const volatile u64 limit_ns = 100000000;

#define BE16(x) __builtin_bswap16(x)
enum { IPV4 = 0x0800, IPV6 = 0x86dd, VLAN = 0x8100, QINQ = 0x88a8 };
enum { TCP = 6, UDP = 17 };
enum { FIN = 1, SYN = 2, RST = 4 };

struct ethernet {
	u8 destination[6], source[6];
	u16 type;
};
struct vlan {
	u16 tci, type;
};
struct ipv4 {
	u8 version_len, tos;
	u16 len, id, fragment;
	u8 ttl, protocol;
	u16 checksum;
	u32 source, destination;
};
struct ipv6 {
	u8 first[4];
	u16 len;
	u8 next, hops;
	u32 source[4], destination[4];
};
struct tcp {
	u16 source, destination;
	u32 seq, ack;
	u8 offset, flags;
	u16 window, checksum, urgent;
};

INLINE u64 mac(const u8 *bytes)
{
	return (u64)*(u16 *)bytes << 32 | (u64)*(u16 *)(bytes + 2) << 16 | *(u16 *)(bytes + 4);
}

INLINE void count(enum port port, u32 queue, enum reason reason)
{
	u32 at = (port * QUEUES + queue) * REASONS + reason;
	u64 *frames = bpf_map_lookup_elem(&kept, &at);
	if (frames)
		(*frames)++;
}

INLINE void learn(u64 source, enum port port)
{
	u64 *known = bpf_map_lookup_elem(&stations, &source), value = port;
	if (!known || *known != port)
		bpf_map_update_elem(&stations, &source, &value, BPF_ANY);
}

/* Whether the bridge would send frames to this address out of the other port, and of no other. */
INLINE int is_behind_other(u64 destination, enum port port)
{
	u64 *known = bpf_map_lookup_elem(&stations, &destination);
	return known && *known != port && *known != NEITHER;
}

INLINE int divert(struct xdp_md *xdp, enum port port)
{
	void *at = (void *)(long)xdp->data, *end = (void *)(long)xdp->data_end;
	u32 queue = xdp->rx_queue_index;
	struct connection key = {};

	struct ethernet *ethernet = at;
	at = ethernet + 1;
	if (at > end || queue >= QUEUES)
		return XDP_PASS;
	learn(mac(ethernet->source), port);

	u16 type = ethernet->type;
#pragma unroll
	for (int tag = 0; tag < 2; tag++) {
		struct vlan *vlan = at;
		if (type != BE16(VLAN) && type != BE16(QINQ))
			break;
		if ((void *)(vlan + 1) > end)
			return XDP_PASS;
		key.vlans[0] = key.vlans[1];
		key.vlans[1] = vlan->tci & BE16(0x0fff);
		type = vlan->type;
		at = vlan + 1;
	}

	u8 tos, protocol;
	if (type == BE16(IPV4)) {
		struct ipv4 *ip = at;
		if ((void *)(ip + 1) > end)
			return XDP_PASS;
		tos = ip->tos;
		/* What is behind a fragment's IP header is anything. */
		protocol = ip->fragment & BE16(0x3fff) ? 0 : ip->protocol;
		key.source[0] = ip->source;
		key.destination[0] = ip->destination;
		at += (ip->version_len & 0x0f) * 4;
	} else if (type == BE16(IPV6)) {
		struct ipv6 *ip = at;
		if ((void *)(ip + 1) > end)
			return XDP_PASS;
		tos = ip->first[0] << 4 | ip->first[1] >> 4;
		/* TCP and UDP behind extension headers go untouched: not worth a loop here. */
		protocol = ip->next;
		key.vlans[0] |= BE16(0x8000);
		__builtin_memcpy(key.source, ip->source, sizeof(key.source));
		__builtin_memcpy(key.destination, ip->destination, sizeof(key.destination));
		at = ip + 1;
	} else {
		return XDP_PASS;
	}

	u32 socket = port * QUEUES + queue, by_tos = port * 256 + tos;
	u64 *action = bpf_map_lookup_elem(&actions, &by_tos);
	u64 *beat = bpf_map_lookup_elem(&beats, &socket);
	if (!action || !beat)
		return XDP_PASS;

	struct tcp *tcp = at;
	u8 flags = 0;
	if (port == HOST && protocol == TCP) {
		if ((void *)(tcp + 1) > end)
			return XDP_PASS;
		flags = tcp->flags;
		key.ports[0] = tcp->source;
		key.ports[1] = tcp->destination;
	}
	if (!*action && !(flags & (SYN | FIN | RST)))
		return XDP_PASS;

	u64 now = bpf_ktime_get_ns();
	int stale = now > *beat && now - *beat > limit_ns;
	int through = !(ethernet->destination[0] & 1) && is_behind_other(mac(ethernet->destination), port);
	int take = through && !stale;

	if (flags & SYN) {
		struct owner *known = bpf_map_lookup_elem(&connections, &key);
		/* Another queue may have compressed what this one would take for new. */
		int moved = known && known->isn == tcp->seq && known->started && known->queue != queue;
		struct owner owner = { queue, tcp->seq, 0 };
		if (!take || moved)
			bpf_map_delete_elem(&connections, &key);
		else if (!known || known->isn != tcp->seq || known->queue != queue)
			bpf_map_update_elem(&connections, &key, &owner, BPF_ANY);
		take = take && !moved;
	} else if (port == HOST && !(*action & TAKE)) {
		struct owner *known = 0;
		if (protocol == TCP)
			known = bpf_map_lookup_elem(&connections, &key);
		else if (protocol != UDP || !(*action & CONNECTION))
			return XDP_PASS;
		if (protocol == TCP && (*action & OPEN) && !known && take && !(flags & (FIN | RST))) {
			struct owner owner = { queue, 0, 1 };
			bpf_map_update_elem(&connections, &key, &owner, BPF_ANY);
			known = bpf_map_lookup_elem(&connections, &key);
		}
		int mine = protocol == UDP || (known && known->queue == queue);
		if (*action && known && mine && take && !known->started)
			known->started = 1;
		if (flags & (FIN | RST))
			bpf_map_delete_elem(&connections, &key);
		if (!*action)
			return XDP_PASS;
		if (take && !mine) {
			count(port, queue, UNKNOWN);
			return XDP_PASS;
		}
	}

	if (take)
		return bpf_redirect_map(&sockets, socket, XDP_PASS);
	if (*action)
		count(port, queue, through ? STALE : ELSEWHERE);
	return XDP_PASS;
}

SEC("xdp")
int host(struct xdp_md *xdp)
{
	return divert(xdp, HOST);
}

SEC("xdp")
int network(struct xdp_md *xdp)
{
	return divert(xdp, NETWORK);
}

/* No helper used here asks for another. */
char _license[] SEC("license") = "MIT OR Apache-2.0";
