// A plugin of QEMU (user mode) that counts how often a write of a Go program takes a cache line from another processor.
//
//   gcc -shared -fPIC -O2 -o lines.so lines.c
//   qemu-x86_64 -plugin ./lines.so,at=ADDRESS,wire=ADDRESS,skip=N,count=N,to=FILE PROGRAM
//
// The first ADDRESS (hexadecimal) is that of a function that runs once for each request, the second that
// of the instruction by which a thread takes a P, the runtime's word for a processor: it writes to the P.
// After skip requests the plugin counts for count requests, then writes a line for each instruction and
// cache line to FILE: INSTRUCTION LINE TRANSFERS, and ends the program. The owner of a line is the
// processor that wrote it last, and a write by another one is a transfer; caches have no other limits
// here. An instruction that writes two lines counts for the first.
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// From qemu-plugin.h (QEMU 6 and 7), which not every distribution has.
typedef uint64_t qemu_plugin_id_t;
struct qemu_plugin_tb;
struct qemu_plugin_insn;
typedef struct qemu_info_t qemu_info_t;
size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *);
struct qemu_plugin_insn *qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *, size_t);
uint64_t qemu_plugin_insn_vaddr(const struct qemu_plugin_insn *);
void qemu_plugin_register_vcpu_tb_trans_cb(qemu_plugin_id_t, void (*)(qemu_plugin_id_t, struct qemu_plugin_tb *));
void qemu_plugin_register_vcpu_insn_exec_cb(struct qemu_plugin_insn *, void (*)(unsigned, void *), int, void *);
bool qemu_plugin_mem_is_store(uint32_t);
void qemu_plugin_register_vcpu_mem_cb(struct qemu_plugin_insn *, void (*)(unsigned, uint32_t, uint64_t, void *), int, int, void *);
enum { NO_REGISTERS = 0, WRITES = 2 };

__attribute__((visibility("default"))) int qemu_plugin_version = 1;

enum { LINE_BITS = 6, SLOTS = 1 << 24 };

enum { PROCESSORS = 64, THREADS = 4096 };

static uint64_t at, wire, skip, requests, counted;
static char *to;

// A slot has a line and its owner in one word: the number of the line, and that of the processor below it.
static uint64_t owners[SLOTS];

// Transfers by instruction and line.
static struct transfers {
	uint64_t instruction, line, count;
} transfers[SLOTS];

static uint64_t hash(uint64_t a) { return (a * 0x9E3779B97F4A7C15u) >> 40; }

static void count(uint64_t instruction, uint64_t line)
{
	for (uint64_t i = hash(instruction * 31 + line);; i = (i + 1) % SLOTS) {
		struct transfers *t = &transfers[i];
		uint64_t none = 0;
		if (__atomic_load_n(&t->instruction, __ATOMIC_ACQUIRE) == 0
			&& __atomic_compare_exchange_n(&t->instruction, &none, instruction, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
			__atomic_store_n(&t->line, line, __ATOMIC_RELEASE);
		if (t->instruction == instruction && __atomic_load_n(&t->line, __ATOMIC_ACQUIRE) == line) {
			__atomic_add_fetch(&t->count, 1, __ATOMIC_RELAXED);
			return;
		}
	}
}

// The processor of each thread, from 1; 0 before it has one.
static uint64_t processors[PROCESSORS], processor_of[THREADS];

static void on_wire(unsigned thread, uint32_t info, uint64_t address, void *none)
{
	for (uint64_t i = 0; i < PROCESSORS; i++) {
		uint64_t free = 0;
		if (processors[i] == address || __atomic_compare_exchange_n(&processors[i], &free, address, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED)
			|| free == address) {
			processor_of[thread % THREADS] = i + 1;
			return;
		}
	}
}

static void on_write(unsigned thread, uint32_t info, uint64_t address, void *instruction)
{
	if (!qemu_plugin_mem_is_store(info))
		return;
	uint64_t line = address >> LINE_BITS, own = processor_of[thread % THREADS];
	uint64_t mine = line << 16 | (own ? own : PROCESSORS + 1 + thread % THREADS);
	for (uint64_t i = hash(line);; i = (i + 1) % SLOTS) {
		uint64_t had = __atomic_load_n(&owners[i], __ATOMIC_RELAXED);
		if (had == mine)
			return;
		if (had != 0 && had >> 16 != line)
			continue;
		if (!__atomic_compare_exchange_n(&owners[i], &had, mine, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
			if (had >> 16 != line)
				continue; // another line has taken the slot
			__atomic_store_n(&owners[i], mine, __ATOMIC_RELAXED);
		}
		uint64_t n = __atomic_load_n(&requests, __ATOMIC_RELAXED);
		if (had != 0 && n > skip && n <= skip + counted)
			count((uint64_t)instruction, line);
		return;
	}
}

static void on_request(unsigned thread, void *none)
{
	if (__atomic_add_fetch(&requests, 1, __ATOMIC_RELAXED) != skip + counted + 1)
		return;
	FILE *f = fopen(to, "w");
	for (size_t i = 0; f && i < SLOTS; i++)
		if (transfers[i].count)
			fprintf(f, "%lx %lx %lu\n", transfers[i].instruction, transfers[i].line << LINE_BITS, transfers[i].count);
	if (f)
		fclose(f);
	_exit(0);
}

static void on_translation(qemu_plugin_id_t id, struct qemu_plugin_tb *block)
{
	for (size_t i = 0; i < qemu_plugin_tb_n_insns(block); i++) {
		struct qemu_plugin_insn *one = qemu_plugin_tb_get_insn(block, i);
		uint64_t address = qemu_plugin_insn_vaddr(one);
		qemu_plugin_register_vcpu_mem_cb(one, on_write, NO_REGISTERS, WRITES, (void *)address);
		if (address == wire)
			qemu_plugin_register_vcpu_mem_cb(one, on_wire, NO_REGISTERS, WRITES, NULL);
		if (address == at)
			qemu_plugin_register_vcpu_insn_exec_cb(one, on_request, NO_REGISTERS, NULL);
	}
}

__attribute__((visibility("default"))) int qemu_plugin_install(qemu_plugin_id_t id, const qemu_info_t *info, int argc, char **argv)
{
	for (int i = 0; i < argc; i++) {
		char *value = strchr(argv[i], '=');
		if (!value)
			return 1;
		*value++ = 0;
		if (!strcmp(argv[i], "at"))
			at = strtoull(value, NULL, 16);
		else if (!strcmp(argv[i], "wire"))
			wire = strtoull(value, NULL, 16);
		else if (!strcmp(argv[i], "skip"))
			skip = strtoull(value, NULL, 10);
		else if (!strcmp(argv[i], "count"))
			counted = strtoull(value, NULL, 10);
		else if (!strcmp(argv[i], "to"))
			to = strdup(value);
	}
	if (!at || !wire || !counted || !to)
		return 1;
	qemu_plugin_register_vcpu_tb_trans_cb(id, on_translation);
	return 0;
}
