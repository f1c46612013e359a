/* Which frames leave the kernel's path for the engines. All others, and all while the process that runs the engines is
 * gone or hangs, go on to the bridge behind (XDP_PASS). The program `aggregator`, at the end, chooses frames for an aggregator.
 *
 * A frame is taken if the process has given a sign of life lately, the frame goes from one of the two ports to the
 * other, it is not longer than the process has room for, and it is one of these:
 *   network port: frames whose type of service is the mark of compressed frames or a rule's; every SYN that says first
 *   among its options what the far end restores;
 *   host port: frames with the mark; UDP with a rule's type of service; SYNs with a rule's type of service; other TCP with a
 *   rule's type of service on the queue whose engine knows the connection;
 *   both: a SYN-ACK, of any type of service, whose SYN was taken, and a RST with a rule's that refuses such a SYN. Listeners often are not
 *   tagged, and what watches connections at the bridge has to see both of a connection's SYNs, or neither. So a SYN-ACK whose SYN was
 *   not taken is left, too, if a rule asks the far end whether it restores: nothing would come of it.
 * So a connection without a tag at either end meets the bridge as if there were no program. What is taken passes by all that the bridge,
 * its packet filter and the ports' own filters do.
 *
 * If a rule asks the far end whether it restores, and the far end of a connection advertised nothing on its SYN, no engine would
 * change a frame of that connection, and the way through it takes time: of these, only SYNs and frames with the mark are taken.
 * Likewise of a connection that is not known: its host's frames go by the bridge, and what watches connections there would take
 * data for wrong whose acknowledgements it does not see.
 *
 * Connections and queues. A flow table belongs to a queue, but a host may move a connection to another queue (Linux
 * does when it sends after a time-out). `connections` says which queue has a connection; on others it goes untouched.
 * Two things must never happen: that one engine takes a connection's bytes for new which another one compressed, and
 * that an engine counts values from a start which is not the stream's. Each engine sees to both for the frames that it
 * gets. The `enum phase` below sees to both for what an engine does not get. */
#include "bpf.h"

#define QUEUES 64
enum port { HOST, NETWORK };

/* What userspace says of a type of service, by port. */
enum action {
	TAKE = 1,       /* always */
	CONNECTION = 2, /* UDP; TCP where the connection is known */
	OPEN = 4,       /* with CONNECTION: a connection is known from its first frame on, SYN or not */
	ASK = 8,        /* with either: no frame of a connection is compressed unless its far end advertised that it restores */
};

/* Sockets, by port and queue. */
struct {
	NUMBER(type, BPF_MAP_TYPE_XSKMAP);
	NUMBER(max_entries, 2 * QUEUES);
	TYPE(key, u32);
	TYPE(value, u32);
} sockets SEC(".maps");

/* When the thread behind a socket last gave a sign of life (CLOCK_MONOTONIC, ns), by port and queue; 0: there is no
 * such thread. */
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
	TOO_LONG,  /* longer than `longest` */
	/* With payload: */
	NOT_NEGOTIATED, /* an engine has to ask, and the far end advertised nothing */
	TAGGED_LATE,    /* the host's SYN had no rule's type of service */
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
enum phase {
	MISSED,    /* its SYN was seen, but no engine got it */
	SEEN,      /* the engine of `queue` got its SYN, and no tagged payload yet: another engine may still get both */
	TIED,      /* what the engine of `queue` knows of it, no other one could know */
	ALONE,     /* left alone until it ends: an engine does not know all that it should */
	ENDED,     /* FIN or RST was sent: left alone until another start */
	FORGOTTEN, /* nothing is known of its SYN. It is not in the map, or only for what the far end advertised */
};
/* A connection's SYNs so far, as bits. */
enum history {
	TAGGED = 1,   /* the host's had a rule's type of service */
	RESTORES = 2, /* the far end's had the capability option */
	AROUND = 4,   /* the one that began the connection was taken, whichever end's it was */
};
/* No SYN was seen. Not a number that a SYN can have. */
#define NO_ISN (1ull << 32)
struct owner {
	u64 isn;
	u32 queue;
	u16 phase, history;
};
struct {
	NUMBER(type, BPF_MAP_TYPE_LRU_HASH);
	NUMBER(max_entries, 65536);
	TYPE(key, struct connection);
	TYPE(value, struct owner);
} connections SEC(".maps");

/* Longer without a sign of life, and frames go to the bridge. */
const volatile u64 limit_ns = 100000000;
/* Bytes of the longest frame that is taken. The kernel drops what does not fit a socket's memory. */
const volatile u64 longest = 1522;

#define BE16(x) __builtin_bswap16(x)
enum { IPV4 = 0x0800, ARP = 0x0806, IPV6 = 0x86dd, VLAN = 0x8100, QINQ = 0x88a8 };
enum { ICMP = 1, TCP = 6, UDP = 17 };
enum { FIN = 1, SYN = 2, RST = 4, ACK = 16 };

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

struct udp {
	u16 source, destination, len, checksum;
};
struct icmp {
	u8 type, code;
	u16 checksum;
};
/* For IPv4 over Ethernet. */
struct arp {
	u16 hardware, protocol, lens, operation;
	u8 sender_mac[6], sender_ip[4], target_mac[6];
	u32 target_ip;
};

/* A SYN whose options begin with the capability option (FORMAT.md section 5.5): NOP, NOP, kind, length, ExID. */
struct capability {
	struct tcp tcp;
	u16 nops, kind, exid;
};

INLINE u64 mac(const u8 *bytes)
{
	const u16 *words = (const u16 *)bytes;
	return (u64)words[0] << 32 | (u64)words[1] << 16 | words[2];
}

INLINE void count(enum port port, u32 queue, enum reason reason)
{
	u32 at = (port * QUEUES + queue) * REASONS + reason;
	u64 *frames = bpf_map_lookup_elem(&kept, &at);
	if (frames)
		(*frames)++;
}

/* Whether the process has given no sign of life lately. */
INLINE int is_stale(const u64 *beat, u64 now)
{
	return !beat || !*beat || (now > *beat && now - *beat > limit_ns);
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

/* Entries are replaced, not written to: one that was evicted meanwhile may be another connection's. */
INLINE void remember(struct connection *key, u64 isn, u32 queue, enum phase phase, u32 history)
{
	struct owner owner = { isn, queue, phase, history };
	if (bpf_map_update_elem(&connections, key, &owner, BPF_ANY))
		bpf_map_delete_elem(&connections, key);
}

/* Takes note of a SYN of the host; whether the engine of `queue`, which would `take` it, gets it. */
INLINE int start(struct connection *key, const struct owner *known, u64 isn, u32 queue, int take, int tagged, int answers)
{
	u64 first = known ? known->isn : NO_ISN;
	enum phase phase = known ? known->phase : FORGOTTEN;
	u32 history = known ? known->history : 0;
	int same = first == isn, here = take && known && known->queue == queue;
	/* An end that answers may have received the far end's SYN before. */
	if (!same)
		history &= answers ? RESTORES | AROUND : 0;
	if (tagged)
		history |= TAGGED;
	u32 around = answers ? history : history | AROUND;
	switch (phase) {
	case FORGOTTEN:
	case ENDED:
		if (!same)
			remember(key, isn, queue, take ? SEEN : MISSED, take ? around : history);
		return take && !same;
	case MISSED:
	case SEEN:
		if (same) {
			if (take)
				remember(key, isn, queue, SEEN, around);
			return take;
		}
		break;
	case TIED:
		if (same && (here || !take))
			return here;
		break;
	default:
		return 0;
	}
	/* A second start, or the first on another queue. An engine that knows the first start and gets the second decides.
	 * In any other case no engine may get the rest. */
	int decides = here && phase != MISSED;
	remember(key, isn, queue, decides ? TIED : ALONE, decides ? around : history);
	return decides;
}

/* Takes note of a SYN of the far end: sets the bits `set`, and clears those of `clear` that it does not set. RESTORES is never cleared: a
 * SYN without the capability option may be a copy of one that had it. */
INLINE void receive_syn(struct connection *key, const struct owner *known, u32 set, u32 clear)
{
	u32 before = known ? known->history : 0, now = (before & ~clear) | set;
	if (now == before)
		return;
	if (!known)
		remember(key, NO_ISN, 0, FORGOTTEN, now);
	else
		remember(key, known->isn, known->queue, known->phase, now);
}

/* Whether the far end of this connection advertised nothing. If the host's SYN was not seen, nobody knows. */
INLINE int is_silent(const struct owner *known)
{
	return known && known->isn != NO_ISN && !(known->history & RESTORES);
}

INLINE int divert(struct xdp_md *xdp, enum port port)
{
	void *at = (void *)(long)xdp->data, *end = (void *)(long)xdp->data_end;
	u32 queue = xdp->rx_queue_index;
	/* The host's direction, whichever this frame's is. */
	struct connection key = {};
	u32 *source = port == HOST ? key.source : key.destination, *destination = port == HOST ? key.destination : key.source;

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
	/* Bytes behind the IP header. */
	u32 len;
	if (type == BE16(IPV4)) {
		struct ipv4 *ip = at;
		if ((void *)(ip + 1) > end)
			return XDP_PASS;
		tos = ip->tos;
		/* What is behind a fragment's IP header is anything. */
		protocol = ip->fragment & BE16(0x3fff) ? 0 : ip->protocol;
		source[0] = ip->source;
		destination[0] = ip->destination;
		len = BE16(ip->len) - (ip->version_len & 0x0f) * 4;
		at += (ip->version_len & 0x0f) * 4;
	} else if (type == BE16(IPV6)) {
		struct ipv6 *ip = at;
		if ((void *)(ip + 1) > end)
			return XDP_PASS;
		tos = ip->first[0] << 4 | ip->first[1] >> 4;
		/* TCP and UDP behind extension headers go untouched: not worth a loop here. */
		protocol = ip->next;
		key.vlans[0] |= BE16(0x8000);
		__builtin_memcpy(source, ip->source, sizeof(key.source));
		__builtin_memcpy(destination, ip->destination, sizeof(key.destination));
		at = ip + 1;
		len = BE16(ip->len);
	} else {
		return XDP_PASS;
	}

	u32 socket = port * QUEUES + queue, by_tos = port * 256 + tos;
	u64 *action = bpf_map_lookup_elem(&actions, &by_tos);
	u64 *beat = bpf_map_lookup_elem(&beats, &socket);
	if (!action || !beat)
		return XDP_PASS;

	struct tcp *tcp = at;
	struct capability *capability = at;
	u8 flags = 0;
	int has_capability = 0, has_payload = 0;
	if (protocol == TCP && (void *)(tcp + 1) <= end) {
		flags = tcp->flags;
		has_payload = len > (tcp->offset >> 4) * 4;
		key.ports[port] = tcp->source;
		key.ports[!port] = tcp->destination;
		has_capability = port == NETWORK && flags & SYN && (void *)(capability + 1) <= end &&
		                 capability->nops == BE16(0x0101) && capability->kind == BE16(0xfd0a) &&
		                 capability->exid == BE16(0x6777);
	} else if (port == HOST && protocol == TCP) {
		return XDP_PASS;
	}
	if (!*action && !(flags & (port == NETWORK ? SYN : SYN | FIN | RST)))
		return XDP_PASS;

	int stale = is_stale(beat, bpf_ktime_get_ns());
	int through = !(ethernet->destination[0] & 1) && is_behind_other(mac(ethernet->destination), port);
	/* Here, and not at the start: a FIN in a long frame ends its connection, too. */
	int fits = (u64)(end - (void *)(long)xdp->data) <= longest;
	int able = through && !stale && fits, take = able;

	if (flags & SYN) {
		const struct owner *known = bpf_map_lookup_elem(&connections, &key);
		int answers = flags & ACK, follows = answers && known && known->history & AROUND;
		/* An answer to what was not taken counts only where nobody has to ask. */
		take = take && (follows || has_capability || (*action && !(answers && *action & ASK)));
		if (port == NETWORK) {
			u32 history = has_capability ? RESTORES : 0;
			receive_syn(&key, known, !answers && take ? history | AROUND : history, answers ? 0 : AROUND);
		} else if (!start(&key, known, tcp->seq, queue, take, *action != 0, answers) && take) {
			if (*action)
				count(port, queue, UNKNOWN);
			return XDP_PASS;
		}
	} else if (port == HOST && !(*action & TAKE)) {
		struct owner *known = 0;
		if (protocol == TCP)
			known = bpf_map_lookup_elem(&connections, &key);
		else if (protocol != UDP || !(*action & CONNECTION))
			return XDP_PASS;
		int unknown = !known || known->phase == MISSED || known->phase == FORGOTTEN;
		if (protocol == TCP && *action & OPEN && unknown && !(flags & (FIN | RST)) && take) {
			remember(&key, NO_ISN, queue, TIED, 0);
			known = bpf_map_lookup_elem(&connections, &key);
		}
		int mine = protocol == UDP, silent = *action & ASK && is_silent(known), tagged = 0, late = 0, around = 0;
		if (known) {
			u64 isn = known->isn;
			u32 owner = known->queue, history = known->history, phase = known->phase, before = phase;
			tagged = history & TAGGED;
			late = phase == MISSED && !tagged;
			around = history & AROUND;
			mine = owner == queue && (phase == SEEN || phase == TIED) && (isn != NO_ISN || *action & OPEN);
			if (*action && take && mine && !silent)
				phase = TIED;
			/* Where nothing of it was compressed, there is nothing to remember. */
			if (flags & (FIN | RST))
				phase = phase == TIED || phase == ALONE || phase == ENDED ? ENDED : FORGOTTEN;
			if (phase != before && phase == FORGOTTEN)
				bpf_map_delete_elem(&connections, &key);
			else if (phase != before)
				remember(&key, isn, owner, phase, history);
		}
		if (!*action)
			return XDP_PASS;
		/* A refusal goes the way of what it refuses. */
		if (take && (!mine || silent) && !(flags & RST && around)) {
			if (!mine && !late && !silent)
				count(port, queue, UNKNOWN);
			else if (has_payload)
				count(port, queue, tagged ? NOT_NEGOTIATED : TAGGED_LATE);
			return XDP_PASS;
		}
	} else if (take && *action & ASK && protocol == TCP && !(flags & RST)) {
		const struct owner *known = bpf_map_lookup_elem(&connections, &key);
		if (!known || is_silent(known)) {
			if (has_payload)
				count(port, queue, known ? NOT_NEGOTIATED : UNKNOWN);
			return XDP_PASS;
		}
	}

	if (take)
		return bpf_redirect_map(&sockets, socket, XDP_PASS);
	if (*action && !able)
		count(port, queue, !through ? ELSEWHERE : stale ? STALE : TOO_LONG);
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

/* An address for an aggregator (`gradwire-xdp aggregate`): its MAC address as of `mac`, the others as in frames. */
const volatile u64 aggregator_mac = 0, aggregator_ip = 0, aggregator_port = 0;
#define BROADCAST 0xffffffffffffull

/* Whether a frame is for the aggregator: its protocol's datagrams, a question who has its address, or a ping. What is for its address
 * and none of these, the kernel answers or drops. */
INLINE int is_for_aggregator(void *at, void *end)
{
	struct ethernet *ethernet = at;
	at = ethernet + 1;
	if (at > end)
		return 0;
	u64 destination = mac(ethernet->destination);
	if (ethernet->type == BE16(ARP)) {
		struct arp *arp = at;
		return (void *)(arp + 1) <= end && arp->operation == BE16(1) && arp->target_ip == aggregator_ip &&
		       (destination == aggregator_mac || destination == BROADCAST);
	}
	struct ipv4 *ip = at;
	at = ip + 1;
	/* With options, or a fragment: an aggregator takes neither. */
	if (ethernet->type != BE16(IPV4) || at > end || destination != aggregator_mac || ip->destination != aggregator_ip ||
	    ip->version_len != 0x45 || ip->fragment & BE16(0x3fff))
		return 0;
	if (ip->protocol == UDP) {
		struct udp *udp = at;
		return (void *)(udp + 1) <= end && udp->destination == aggregator_port;
	}
	struct icmp *icmp = at;
	return ip->protocol == ICMP && (void *)(icmp + 1) <= end && icmp->type == 8;
}

SEC("xdp")
int aggregator(struct xdp_md *xdp)
{
	void *at = (void *)(long)xdp->data, *end = (void *)(long)xdp->data_end;
	u32 queue = xdp->rx_queue_index, socket = HOST * QUEUES + queue;
	if (queue >= QUEUES || !is_for_aggregator(at, end))
		return XDP_PASS;
	int stale = is_stale(bpf_map_lookup_elem(&beats, &socket), bpf_ktime_get_ns());
	if (!stale && (u64)(end - at) <= longest)
		return bpf_redirect_map(&sockets, socket, XDP_PASS);
	count(HOST, queue, stale ? STALE : TOO_LONG);
	return XDP_PASS;
}

/* No helper used here asks for another. */
char _license[] SEC("license") = "MIT OR Apache-2.0";
