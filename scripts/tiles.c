/* The tests of kernels for AMX and AVX-512 BF16, on a core that has AVX-512 but neither of these.
 *
 *   cc -O2 -shared -fPIC -o tiles.so scripts/tiles.c
 *   CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUNNER="env LD_PRELOAD=$PWD/tiles.so" cargo test --release -p gemwright-cpu
 *
 * CPUID is made to trap and answers that both are there; an instruction the core does not know traps too, and is done here,
 * a microsecond or two each. Results are those of the manual but for the order in which a tile's sums are rounded. Needs a
 * kernel that lets CPUID trap (Linux, cpuid_fault in /proc/cpuinfo); nothing is to be timed with it. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <immintrin.h>
#include <math.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

enum { SET_CPUID = 0x1012, REQUEST = 0x1023, TILES = 8, ROWS = 16, ROW_BYTES = 64 };
/* Where a signal's frame keeps registers, by XSAVE's standard format. */
enum { MASKS = 1088, UPPER_HALVES = 1152, UPPER_REGISTERS = 1664, HIGH_OF_16 = 576, PRESENT = 512 };

static __thread struct {
  uint8_t config[64];
  int configured;
  uint8_t tile[TILES][ROWS][ROW_BYTES];
} state __attribute__((tls_model("initial-exec")));

static void give_up(const uint8_t *at, const char *why) {
  char text[160];
  int length = snprintf(text, sizeof text, "tiles.c: %s: %02x %02x %02x %02x %02x %02x %02x %02x\n", why, at[0], at[1], at[2],
                        at[3], at[4], at[5], at[6], at[7]);
  if (write(2, text, length) < 0) _exit(125);
  _exit(126);
}

static int rows_of(int tile) { return state.config[48 + tile]; }
static int bytes_of(int tile) { return state.config[16 + 2 * tile] | state.config[17 + 2 * tile] << 8; }

/* --- numbers ------------------------------------------------------------------------------------------------------- */

static float of_half(uint16_t bits) {
  uint32_t whole = (uint32_t)bits << 16;
  float x;
  memcpy(&x, &whole, 4);
  return x;
}

static uint16_t to_half(float x) {
  uint32_t bits;
  memcpy(&bits, &x, 4);
  if (isnan(x)) return bits >> 16 | 0x40;
  if ((bits & 0x7f800000) == 0) return bits >> 16 & 0x8000;
  return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}

/* A product of two bf16 is exact in f32, so this rounds once, like the instruction; [`unknown`] has what is denormal be zero. */
static float sum(float total, uint16_t a, uint16_t b) { return total + of_half(a) * of_half(b); }

/* --- operands ------------------------------------------------------------------------------------------------------ */

static const int ORDER[16] = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP, REG_RSI, REG_RDI,
                              REG_R8,  REG_R9,  REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15};

struct Operand {
  int mod, reg, rm, length; /* length: of modrm and what follows it */
  uint8_t *address;         /* without the index, where a tile's rows are meant */
  int64_t stride;
};

/* Of the byte modrm on; `next` is what follows the instruction, for addresses relative to it. */
static struct Operand operand(const uint8_t *at, greg_t *regs, int rx, int ry, int rb, int scale8) {
  struct Operand found = {at[0] >> 6, (at[0] >> 3 & 7) | ry, (at[0] & 7), 1, 0, 0};
  if (found.mod == 3) {
    found.rm |= rb | rx << 1;
    return found;
  }
  int64_t address = 0;
  int base = found.rm, absolute = 0;
  if (found.rm == 4) {
    uint8_t sib = at[found.length++];
    base = sib & 7;
    int index = (sib >> 3 & 7) | rx;
    if (index != 4) found.stride = (int64_t)regs[ORDER[index]] << (sib >> 6);
    absolute = base == 5 && found.mod == 0;
    if (!absolute) address = regs[ORDER[base | rb]];
  } else if (found.rm == 5 && found.mod == 0) {
    address = (int64_t)(intptr_t)(at + 5);
    absolute = 1;
  } else {
    address = regs[ORDER[base | rb]];
  }
  if (found.mod == 1) {
    address += (int64_t)(int8_t)at[found.length] * scale8;
    found.length += 1;
  } else if (found.mod == 2 || absolute) {
    int32_t far;
    memcpy(&far, at + found.length, 4);
    address += far;
    found.length += 4;
  }
  found.address = (uint8_t *)(intptr_t)address;
  return found;
}

/* --- tiles --------------------------------------------------------------------------------------------------------- */

__attribute__((target("avx2"), optimize("O3"))) static void multiply(int to, int a, int b) {
  for (int row = 0; row < rows_of(to); row++) {
    float out[16], even[16] = {0}, odd[16] = {0};
    memcpy(out, state.tile[to][row], 64);
    for (int pair = 0; pair < bytes_of(a) / 4; pair++) {
      uint16_t left[2], right[32];
      memcpy(left, state.tile[a][row] + 4 * pair, 4);
      memcpy(right, state.tile[b][pair], 64);
      float first = of_half(left[0]), second = of_half(left[1]);
      for (int n = 0; n < 16; n++) {
        even[n] += first * of_half(right[2 * n]);
        odd[n] += second * of_half(right[2 * n + 1]);
      }
    }
    for (int n = 0; n < bytes_of(to) / 4; n++) out[n] += even[n] + odd[n];
    memcpy(state.tile[to][row], out, bytes_of(to));
  }
}

/* Returns the instruction's length. */
static int tile_instruction(const uint8_t *at, greg_t *regs) {
  int rx = at[1] & 0x40 ? 0 : 8, rb = at[1] & 0x20 ? 0 : 8, pp = at[2] & 3, code = at[3];
  int third = ~at[2] >> 3 & 15;
  struct Operand to = operand(at + 4, regs, rx, 0, rb, 1);
  if (code == 0x49 && to.mod != 3) {
    if (pp == 0) {
      memcpy(state.config, to.address, 64);
      state.configured = 1;
      memset(state.tile, 0, sizeof state.tile);
    } else {
      memcpy(to.address, state.config, 64);
    }
    return 4 + to.length;
  }
  if (code == 0x49 && pp == 0) {
    memset(&state, 0, sizeof state);
    return 5;
  }
  if (!state.configured) give_up(at, "tiles are not configured");
  if (code == 0x49 && pp == 3) {
    memset(state.tile[to.reg], 0, sizeof state.tile[0]);
  } else if (code == 0x4b) {
    for (int row = 0; row < rows_of(to.reg); row++) {
      uint8_t *line = to.address + row * to.stride;
      if (pp == 2) {
        memcpy(line, state.tile[to.reg][row], bytes_of(to.reg));
      } else {
        memset(state.tile[to.reg][row], 0, ROW_BYTES);
        memcpy(state.tile[to.reg][row], line, bytes_of(to.reg));
      }
    }
  } else if (code == 0x5c && pp == 2) {
    if (to.reg == to.rm || to.reg == third || to.rm == third) give_up(at, "a tile stands twice in a product");
    multiply(to.reg, to.rm, third);
  } else {
    give_up(at, "an instruction of tiles that is not known here");
  }
  return 4 + to.length;
}

/* --- vectors of bf16 ----------------------------------------------------------------------------------------------- */

/* Parts of register `index` in a signal's frame. */
static uint8_t *part(uint8_t *frame, int index, int from) {
  if (index >= 16) return frame + UPPER_REGISTERS + 64 * (index - 16) + from;
  if (from >= 32) return frame + UPPER_HALVES + 32 * index + (from - 32);
  return from >= 16 ? frame + HIGH_OF_16 + 16 * index + (from - 16) : frame + 160 + 16 * index + from;
}

static void get(uint8_t *frame, int index, uint8_t *value) {
  for (int from = 0; from < 64; from += 16) memcpy(value + from, part(frame, index, from), 16);
}

static void put(uint8_t *frame, int index, const uint8_t *value) {
  for (int from = 0; from < 64; from += 16) memcpy(part(frame, index, from), value + from, 16);
  uint64_t present;
  memcpy(&present, frame + PRESENT, 8);
  present |= 2 | 4 | 64 | 128;
  memcpy(frame + PRESENT, &present, 8);
}

static int vector_instruction(const uint8_t *at, greg_t *regs, uint8_t *frame) {
  int high = at[1] & 0x10 ? 0 : 16;
  int rx = at[1] & 0x40 ? 0 : 8, rb = at[1] & 0x20 ? 0 : 8, ry = (at[1] & 0x80 ? 0 : 8) | high;
  int pp = at[2] & 3, code = at[4], third = (~at[2] >> 3 & 15) | (at[3] & 8 ? 0 : 16);
  int bytes = 16 << (at[3] >> 5 & 3), broadcast = at[3] >> 4 & 1, masked = at[3] & 7, zeroes = at[3] >> 7;
  struct Operand from = operand(at + 5, regs, rx, ry, rb, broadcast ? 4 : bytes);
  uint8_t first[64] = {0}, second[64] = {0}, to[64] = {0}, before[64];
  if (from.mod == 3) {
    get(frame, from.rm, second);
  } else {
    uint8_t *line = from.address + from.stride;
    for (int i = 0; i < bytes; i += 4) memcpy(second + i, broadcast ? line : line + i, 4);
  }
  get(frame, third, first);
  get(frame, from.reg, before);
  uint64_t mask = ~0ull;
  if (masked) memcpy(&mask, frame + MASKS + 8 * masked, 8);
  uint16_t a[32], b[32], halves[32] = {0};
  float x[16], y[16];
  memcpy(a, first, 64), memcpy(b, second, 64), memcpy(x, first, 64), memcpy(y, second, 64);
  int size = 2, count = bytes / 4;
  if (code == 0x52 && pp == 2) {
    float out[16];
    memcpy(out, before, 64);
    size = 4;
    for (int i = 0; i < count; i++) out[i] = sum(sum(out[i], a[2 * i + 1], b[2 * i + 1]), a[2 * i], b[2 * i]);
    memcpy(to, out, bytes);
  } else if (code == 0x72 && pp == 2) {
    for (int i = 0; i < count; i++) halves[i] = to_half(y[i]);
    memcpy(to, halves, bytes / 2);
  } else if (code == 0x72 && pp == 3) {
    for (int i = 0; i < count; i++) halves[i] = to_half(y[i]), halves[count + i] = to_half(x[i]);
    memcpy(to, halves, bytes);
    count *= 2;
  } else {
    give_up(at, "a vector instruction that is not known here");
  }
  for (int i = 0; i < count; i++) {
    if (mask >> i & 1) continue;
    if (zeroes) memset(to + size * i, 0, size);
    else memcpy(to + size * i, before + size * i, size);
  }
  put(frame, from.reg, to);
  return 5 + from.length;
}

/* --- traps --------------------------------------------------------------------------------------------------------- */

static void unknown(int signal, siginfo_t *info, void *context) {
  (void)signal, (void)info;
  _mm_setcsr(0x9fc0);
  ucontext_t *at = context;
  greg_t *regs = at->uc_mcontext.gregs;
  const uint8_t *code = (const uint8_t *)(intptr_t)regs[REG_RIP];
  if (code[0] == 0xc4 && (code[1] & 31) == 2) {
    regs[REG_RIP] += tile_instruction(code, regs);
  } else if (code[0] == 0x62 && (code[1] & 7) == 2) {
    regs[REG_RIP] += vector_instruction(code, regs, (uint8_t *)at->uc_mcontext.fpregs);
  } else {
    give_up(code, "an instruction that is not known here");
  }
}

static struct sigaction theirs;

static void trapped(int signal, siginfo_t *info, void *context) {
  greg_t *regs = ((ucontext_t *)context)->uc_mcontext.gregs;
  const uint8_t *code = (const uint8_t *)(intptr_t)regs[REG_RIP];
  if (info->si_code != SI_KERNEL || code[0] != 0x0f || code[1] != 0xa2) {
    /* Not ours: the program's own handler, or the end. */
    if (theirs.sa_flags & SA_SIGINFO) theirs.sa_sigaction(signal, info, context);
    else _exit(139);
    return;
  }
  uint32_t leaf = regs[REG_RAX], part = regs[REG_RCX], a = leaf, b, c = part, d;
  syscall(SYS_arch_prctl, SET_CPUID, 1);
  __asm__ volatile("cpuid" : "+a"(a), "=b"(b), "+c"(c), "=d"(d));
  syscall(SYS_arch_prctl, SET_CPUID, 0);
  if (leaf == 7 && part == 0) d |= 1u << 22 | 1u << 24, a = a ? a : 1;
  if (leaf == 7 && part == 1) a |= 1u << 5;
  regs[REG_RAX] = a, regs[REG_RBX] = b, regs[REG_RCX] = c, regs[REG_RDX] = d;
  regs[REG_RIP] += 2;
}

/* The program may have handlers of its own for other faults. */
int sigaction(int signal, const struct sigaction *new, struct sigaction *old) {
  static int (*real)(int, const struct sigaction *, struct sigaction *);
  if (!real) real = (int (*)(int, const struct sigaction *, struct sigaction *))dlsym(RTLD_NEXT, "sigaction");
  if (signal == SIGSEGV) {
    if (old) *old = theirs;
    if (new) theirs = *new;
    return 0;
  }
  return signal == SIGILL ? 0 : real(signal, new, old);
}

long syscall(long number, ...) {
  static long (*real)(long, ...);
  if (!real) real = (long (*)(long, ...))dlsym(RTLD_NEXT, "syscall");
  va_list list;
  va_start(list, number);
  long words[6];
  for (int i = 0; i < 6; i++) words[i] = va_arg(list, long);
  va_end(list);
  if (number == SYS_arch_prctl && words[0] == REQUEST) return 0;
  return real(number, words[0], words[1], words[2], words[3], words[4], words[5]);
}

__attribute__((constructor)) static void begin(void) {
  int (*real)(int, const struct sigaction *, struct sigaction *) = dlsym(RTLD_NEXT, "sigaction");
  struct sigaction tile = {.sa_sigaction = unknown, .sa_flags = SA_SIGINFO | SA_NODEFER};
  struct sigaction fault = {.sa_sigaction = trapped, .sa_flags = SA_SIGINFO | SA_NODEFER | SA_ONSTACK};
  real(SIGILL, &tile, NULL);
  real(SIGSEGV, &fault, NULL);
  if (syscall(SYS_arch_prctl, SET_CPUID, 0) != 0) {
    fprintf(stderr, "tiles.c: this machine does not let CPUID trap\n");
    _exit(125);
  }
}
