package node

import (
	"cmp"
	"errors"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The heap is found among the mappings of a process, whether the kernel has names for them or not.
func TestHeapMappings(t *testing.T) {
	const (
		program = "00400000-0158e000 r-xp 00000000 fe:00 9978296                            /usr/bin/weir\n" +
			"0158e000-027e7000 r--p 0118e000 fe:00 9978296                            /usr/bin/weir\n" +
			"027e7000-02915000 rw-p 023e7000 fe:00 9978296                            /usr/bin/weir\n"
		stack = "7ffe3c9f1000-7ffe3ca12000 rw-p 00000000 00:00 0                          [stack]\n"
	)
	for _, row := range []struct {
		why, lines string
		want       []mapping
	}{
		{"no lines", "", nil},
		{"no mapping with the address", program + stack, nil},
		{
			"one mapping", program + "c000000000-c000c00000 rw-p 00000000 00:00 0 \n" + stack,
			[]mapping{{0xc000000000, 0xc000c00000}},
		},
		{
			"with names and what is reserved", program + "c000000000-c000c00000 rw-p 00000000 00:00 0                          [anon: Go: heap]\n" +
				"c000c00000-c004000000 ---p 00000000 00:00 0                              [anon: Go: heap reservation]\n" +
				"7f68cbe3f000-7f68cbef1000 rw-p 00000000 00:00 0                          [anon: Go: gc bits]\n",
			[]mapping{{0xc000000000, 0xc000c00000}},
		},
		{
			"split by advice, the address in the second", "c000000000-c000800000 rw-p 00000000 00:00 0 \nc000800000-c000c00000 rw-p 00000000 00:00 0 \n",
			[]mapping{{0xc000000000, 0xc000800000}, {0xc000800000, 0xc000c00000}},
		},
		{
			"others before and after a gap", "c000000000-c000100000 rw-p 00000000 00:00 0 \nc000800000-c000c00000 rw-p 00000000 00:00 0 \nc001000000-c001100000 rw-p 00000000 00:00 0 \n",
			[]mapping{{0xc000800000, 0xc000c00000}},
		},
		{"the address is the end of a mapping", "c000000000-c000800800 rw-p 00000000 00:00 0 \n", nil},
		{"no addresses", "c000000000 rw-p 00000000 00:00 0 \n", nil},
		{"no numbers", "heap-end rw-p 00000000 00:00 0 \n", nil},
	} {
		if got := heapMappings(row.lines, 0xc000800800); !slices.Equal(got, row.want) {
			t.Errorf("%s: %x; want %x", row.why, got, row.want)
		}
	}
}

// Only what is in memory counts as present.
func TestPresent(t *testing.T) {
	const length = hugePageSize
	mapped, err := unix.Mmap(-1, 0, length, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Munmap(mapped) }()
	if err := unix.Madvise(mapped, unix.MADV_NOHUGEPAGE); err != nil && !errors.Is(err, unix.EINVAL) { // EINVAL: the kernel has none
		t.Fatal(err)
	}
	page := os.Getpagesize()
	mapped[0], mapped[5*page] = 1, 1
	if got := present(uintptr(unsafe.Pointer(unsafe.SliceData(mapped))), length); got != uintptr(2*page) {
		t.Errorf("%d bytes; want two pages", got)
	}
	if got := present(1, length); got != 0 {
		t.Errorf("%d bytes of what the system cannot tell", got)
	}
}

// A heap that is in use gets huge pages where the system has them for those who ask.
func TestHugePages_HoldTheHeap(t *testing.T) {
	mode, _ := os.ReadFile("/sys/kernel/mm/transparent_hugepage/enabled") // without it there are none
	pages := newHugePages()
	if asked := strings.Contains(string(mode), "[madvise]"); asked != (pages != nil) {
		t.Fatalf("mode %q, and huge pages are asked for: %v", mode, pages != nil)
	}
	if pages == nil {
		return // everything below is done only where the system has them for those who ask
	}
	kept := make([]byte, 4*hugePageSize) // has three whole ranges at least
	for i := 0; i < len(kept); i += os.Getpagesize() {
		kept[i] = 1
	}
	var err error
	for tried := -1; tried < len(pages.collapsed); { // each call takes a limited time
		tried = len(pages.collapsed)
		err = cmp.Or(err, pages.collapse())
	}
	if len(pages.collapsed) < 3 {
		t.Errorf("%d ranges were tried; want 3 at least", len(pages.collapsed))
	}
	// The system may have no huge page free, or be older than the call.
	scarce := err != nil && slices.Contains([]error{unix.ENOMEM, unix.EAGAIN, unix.EBUSY, unix.EINVAL}, err)
	if err != nil && !scarce {
		t.Errorf("the system has refused: %v", err)
	}
	if n := anonHugePages(t); n == 0 && !scarce {
		t.Error("the process has no huge page")
	}
	pages.forget()
	if len(pages.collapsed) > 0 {
		t.Error("what was put into huge pages is not forgotten")
	}
	runtime.KeepAlive(kept)
}

// anonHugePages returns how many KiB of the process are in huge pages.
func anonHugePages(t *testing.T) (sum int) {
	t.Helper()
	text, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if size, ok := strings.CutPrefix(line, "AnonHugePages:"); ok {
			n, err := strconv.Atoi(strings.Fields(size)[0])
			if err != nil {
				t.Fatal(err)
			}
			sum += n
		}
	}
	return sum
}

// An idle process keeps its pages as they are, and a busy one does not.
func TestHugePages_OnlyWhileProcessorIsUsed(t *testing.T) {
	for _, row := range []struct {
		why   string
		used  bool
		tried bool
	}{
		{"little processor time since the last call", false, false},
		{"much", true, true},
	} {
		pages := &hugePages{processorTime(), map[uintptr]struct{}{}}
		if pages.processorTime += scavengeInterval; row.used { // far more than this test can use
			pages.processorTime -= scavengeInterval + minProcessorTime
		}
		kept := make([]byte, 4*hugePageSize)
		for i := 0; i < len(kept); i += os.Getpagesize() {
			kept[i] = 1
		}
		if pages.advance(); (len(pages.collapsed) > 0) != row.tried {
			t.Errorf("%s: %d ranges were tried", row.why, len(pages.collapsed))
		}
		runtime.KeepAlive(kept)
	}
	var none *hugePages // no huge pages are wanted
	none.advance()
	none.forget()
}
