// Drives one simulated design: takes batches of frames on standard input, gives what came out on
// standard output.
//
// Every design under test is wrapped in a module `NAME_sim` whose ports are those of
// pass_through_sim.sv: two streams in, two streams out, a bus of registers. So there is one driver,
// and Verilator's `--prefix Vtop` gives all designs one name. src/protocol.rs has the messages, and
// must agree with this file. All numbers are little-endian.

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "Vtop.h"
#include "verilated.h"
#include "verilated_cov.h"

namespace {

constexpr int PORTS = 2;
constexpr int BEAT = 32;

bool get(void *to, size_t len) { return fread(to, 1, len, stdin) == len; }

template <typename T> T take() {
  T value{};
  if (!get(&value, sizeof value)) std::exit(0);  // the other end has gone
  return value;
}

template <typename T> void put(T value) { fwrite(&value, sizeof value, 1, stdout); }

struct Frame {
  uint64_t user;
  uint8_t empty_last;  // a whole beat, and then one of no bytes that ends the frame
  std::vector<uint8_t> bytes;
  uint32_t index;
};

struct Sent {
  uint64_t first = UINT64_MAX, last = UINT64_MAX;
};

struct Received {
  uint8_t port;
  uint64_t user, first, last;
  std::vector<uint8_t> bytes;
};

// A generator of pauses: xorshift, since its sequence must not depend on the library.
struct Random {
  uint64_t state;
  uint32_t next() {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state >> 32;
  }
};

// Empty clocks at one side of a stream: in `chance` of 256 clocks a pause of 1 to `longest` clocks
// begins.
struct Pause {
  uint8_t chance, longest;
  uint32_t left = 0;
  bool now(Random &random) {
    if (left > 0) {
      left--;
      return true;
    }
    if ((random.next() & 0xff) >= chance) return false;
    left = random.next() % longest;
    return true;
  }
};

// One stream in: what it offers, and where in its frames it is.
struct Source {
  std::vector<Frame> frames;
  size_t frame = 0, at = 0;
  bool offered = false;
  Pause pause{};

  bool done() const { return frame == frames.size(); }
  bool last() const {
    const Frame &f = frames[frame];
    return f.empty_last ? at == f.bytes.size() : at + BEAT >= f.bytes.size();
  }
  size_t len() const {
    size_t rest = frames[frame].bytes.size() - at;
    return rest < BEAT ? rest : BEAT;
  }
};

// One stream out.
struct Sink {
  Received frame{};
  bool open = false, ready = false, waited = false;
  Pause pause{};
  uint8_t held_data[BEAT];
  uint32_t held_keep;
  bool held_last;
};

struct Ports {
  uint8_t *s_data, *m_data;
  IData *s_keep, *m_keep;
  CData *s_valid, *s_ready, *s_last, *m_valid, *m_ready, *m_last;
  QData *s_user, *m_user;
};

class Bench {
 public:
  Bench(int argc, char **argv) : context(new VerilatedContext) {
    context->commandArgs(argc, argv);
    top.reset(new Vtop(context.get()));
    ports[0] = {bytes(top->s0_tdata), bytes(top->m0_tdata), &top->s0_tkeep, &top->m0_tkeep,
                &top->s0_tvalid,      &top->s0_tready,      &top->s0_tlast, &top->m0_tvalid,
                &top->m0_tready,      &top->m0_tlast,       &top->s0_tuser, &top->m0_tuser};
    ports[1] = {bytes(top->s1_tdata), bytes(top->m1_tdata), &top->s1_tkeep, &top->m1_tkeep,
                &top->s1_tvalid,      &top->s1_tready,      &top->s1_tlast, &top->m1_tvalid,
                &top->m1_tready,      &top->m1_tlast,       &top->s1_tuser, &top->m1_tuser};
    reset();
  }

  void reset() {
    for (Ports &port : ports) *port.s_valid = *port.m_ready = 0;
    top->reg_valid = 0;
    top->rst = 1;
    for (int i = 0; i < 4; i++) tick();
    top->rst = 0;
    tick();
  }

  // A write or read of a register; false if the design did not answer.
  bool access(bool write, uint16_t addr, uint32_t &value) {
    top->reg_valid = 1;
    top->reg_write = write;
    top->reg_addr = addr;
    top->reg_wdata = value;
    for (int i = 0; i < 1000; i++) {
      top->eval();
      bool ready = top->reg_ready;
      if (ready) value = top->reg_rdata;
      tick();
      if (ready) {
        top->reg_valid = 0;
        return true;
      }
    }
    top->reg_valid = 0;
    return false;
  }

  void batch();
  void coverage(const char *path) { context->coveragep()->write(path); }

 private:
  std::unique_ptr<VerilatedContext> context;
  std::unique_ptr<Vtop> top;
  Ports ports[PORTS];

  template <typename W> static uint8_t *bytes(W &wide) { return reinterpret_cast<uint8_t *>(&wide[0]); }

  void tick() {
    top->clk = 0;
    top->eval();
    top->clk = 1;
    top->eval();
  }

  void offer(Source &source, Ports &port, Random &random, bool garbage);
};

// Sets a source's pins for one clock. Bytes that are not kept are garbage if asked for, so that
// nobody relies on them.
void Bench::offer(Source &source, Ports &port, Random &random, bool garbage) {
  if (!source.offered) {
    if (source.done() || source.pause.now(random)) {
      *port.s_valid = 0;
      if (garbage) {
        for (int i = 0; i < BEAT; i++) port.s_data[i] = random.next();
        *port.s_keep = random.next();
        *port.s_last = random.next() & 1;
        *port.s_user = uint64_t(random.next()) << 32 | random.next();
      }
      return;
    }
    const Frame &frame = source.frames[source.frame];
    size_t len = source.len();
    for (size_t i = 0; i < BEAT; i++)
      port.s_data[i] = i < len ? frame.bytes[source.at + i] : garbage ? random.next() : 0;
    *port.s_keep = len == BEAT ? 0xffffffffu : (1u << len) - 1;
    *port.s_last = source.last();
    // It counts on a frame's first beat alone.
    *port.s_user = source.at == 0 || !garbage ? frame.user : uint64_t(random.next()) << 32 | random.next();
    *port.s_valid = 1;
    source.offered = true;
  }
}

void Bench::batch() {
  Random random{take<uint64_t>() | 1};
  Pause source_pause{take<uint8_t>(), take<uint8_t>()};
  Pause sink_pause{take<uint8_t>(), take<uint8_t>()};
  bool garbage = take<uint8_t>();
  uint64_t reset_at = take<uint64_t>();  // 0: no reset
  uint32_t expected = take<uint32_t>();  // frames out, of all ports; more are noticed
  uint32_t quiet = take<uint32_t>();     // so many clocks without a beat end the batch
  uint32_t count = take<uint32_t>();
  Source sources[PORTS];
  Sink sinks[PORTS];
  std::vector<Sent> sent(count);
  for (uint32_t i = 0; i < count; i++) {
    uint8_t port = take<uint8_t>() % PORTS;
    Frame frame;
    frame.user = take<uint64_t>();
    frame.empty_last = take<uint8_t>();
    frame.bytes.resize(take<uint32_t>());
    frame.index = i;
    if (!get(frame.bytes.data(), frame.bytes.size())) std::exit(0);
    sources[port].frames.push_back(std::move(frame));
  }
  for (int p = 0; p < PORTS; p++) {
    sources[p].pause = source_pause;
    sinks[p].pause = sink_pause;
    sinks[p].pause.longest = sink_pause.longest;
  }

  std::vector<Received> received;
  std::string broken;
  uint64_t clock = 0, idle = 0, stalls = 0, waits = 0;
  auto fault = [&](int port, const char *rule) {
    if (broken.size() < 1000)
      broken += "port " + std::to_string(port) + ", clock " + std::to_string(clock) + ": " + rule + "\n";
  };

  for (;; clock++) {
    if (reset_at != 0 && clock == reset_at) {
      reset();
      break;
    }
    for (int p = 0; p < PORTS; p++) {
      offer(sources[p], ports[p], random, garbage);
      sinks[p].ready = !sinks[p].pause.now(random);
      *ports[p].m_ready = sinks[p].ready;
    }
    top->clk = 0;
    top->eval();

    bool moved = false;
    for (int p = 0; p < PORTS; p++) {
      Ports &port = ports[p];
      Source &source = sources[p];
      if (source.offered) {
        Sent &times = sent[source.frames[source.frame].index];
        if (*port.s_ready) {
          moved = true;
          if (times.first == UINT64_MAX) times.first = clock;
          bool last = source.last();
          source.at += source.len();
          source.offered = false;
          if (last) {
            times.last = clock;
            source.frame++;
            source.at = 0;
          }
        } else {
          stalls++;
        }
      }

      Sink &sink = sinks[p];
      bool valid = *port.m_valid;
      if (sink.waited) {
        if (!valid)
          fault(p, "tvalid fell before tready");
        else if (*port.m_keep != sink.held_keep || *port.m_last != sink.held_last ||
                 std::memcmp(port.m_data, sink.held_data, BEAT) != 0)
          fault(p, "a beat changed while it waited for tready");
      }
      sink.waited = valid && !sink.ready;
      if (sink.waited) {
        waits++;
        std::memcpy(sink.held_data, port.m_data, BEAT);
        sink.held_keep = *port.m_keep;
        sink.held_last = *port.m_last;
      }
      if (valid && sink.ready) {
        moved = true;
        uint32_t keep = *port.m_keep;
        bool last = *port.m_last;
        int len = keep == 0xffffffffu ? BEAT : __builtin_ctz(~keep);
        if (len < BEAT && keep >> len != 0) fault(p, "tkeep has a hole");
        if (len < BEAT && !last) fault(p, "a beat before the last is not full");
        if (!sink.open) {
          sink.frame = Received{};
          sink.frame.port = p;
          sink.frame.first = clock;
          sink.open = true;
        } else if (len == 0) {
          fault(p, "the last beat is empty, and the frame is not");
        }
        if (sink.frame.bytes.size() > 1 << 20) {
          fault(p, "a frame grows and grows");
          idle = UINT64_MAX;
        }
        sink.frame.bytes.insert(sink.frame.bytes.end(), port.m_data, port.m_data + len);
        if (last) {
          sink.frame.last = clock;
          sink.frame.user = *port.m_user;
          received.push_back(std::move(sink.frame));
          sink.open = false;
        }
      }
    }
    top->clk = 1;
    top->eval();

    if (idle == UINT64_MAX) break;
    idle = moved ? 0 : idle + 1;
    bool done = sources[0].done() && sources[1].done();
    // Wait a little for a frame too many.
    if (idle >= (done && received.size() >= expected ? 64 : quiet)) break;
  }
  for (int p = 0; p < PORTS; p++) {
    *ports[p].s_valid = *ports[p].m_ready = 0;
    if (sinks[p].open && reset_at == 0) fault(p, "a frame has no end");
    if (!sources[p].done() && reset_at == 0) fault(p, "the design takes no more beats");
  }

  put<uint64_t>(clock);
  put<uint64_t>(stalls);
  put<uint64_t>(waits);
  put<uint32_t>(broken.size());
  fwrite(broken.data(), 1, broken.size(), stdout);
  for (const Sent &times : sent) {
    put(times.first);
    put(times.last);
  }
  put<uint32_t>(received.size());
  for (const Received &frame : received) {
    put(frame.port);
    put(frame.user);
    put(frame.first);
    put(frame.last);
    put<uint32_t>(frame.bytes.size());
    fwrite(frame.bytes.data(), 1, frame.bytes.size(), stdout);
  }
}

}  // namespace

int main(int argc, char **argv) {
  Bench bench(argc, argv);
  for (int command; (command = fgetc(stdin)) != EOF;) {
    switch (command) {
      case 'B':
        bench.batch();
        break;
      case 'X':
        bench.reset();
        put<uint8_t>(1);
        break;
      case 'R':
      case 'W': {
        uint16_t addr = take<uint16_t>();
        uint32_t value = take<uint32_t>();
        bool answered = bench.access(command == 'W', addr, value);
        put<uint8_t>(answered);
        put<uint32_t>(value);
        break;
      }
      default:
        fprintf(stderr, "no command %d\n", command);
        return 1;
    }
    fflush(stdout);
  }
#if VM_COVERAGE
  if (const char *path = std::getenv("GATEWARE_COVERAGE")) bench.coverage(path);
#endif
  return 0;
}
