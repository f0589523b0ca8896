package node

import (
	"bytes"
	"os"
	"strconv"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	hugePageSize = 2 << 20
	// minPresent is how many bytes of a range must be present in memory to be put into a huge page: half of
	// it. The rest is what a huge page may cost.
	minPresent = hugePageSize / 2
	// minProcessorTime is the processor time between two calls of advance from which huge pages are worth
	// their making: five percent of a processor.
	minProcessorTime = scavengeInterval / 20
	// maxCollapseTime is how long one call of advance puts ranges into huge pages: for each the system copies
	// 2 MiB, and it may have to move the memory of others first.
	maxCollapseTime = 20 * time.Millisecond
)

// A hugePages puts the heap into huge pages (transparent_hugepage): a request touches memory in many places,
// and the processor caches the addresses of few pages. Nothing is done while Weir is idle, and only for
// ranges of which at least half is in use, so that huge pages take little memory. Where the system refuses,
// for example on Linux before 6.1, nothing changes.
type hugePages struct {
	processorTime time.Duration        // used by the process until the last call of advance
	collapsed     map[uintptr]struct{} // addresses of the ranges for which the system was asked
}

// newHugePages returns nil unless the system is set to give huge pages to those who ask for them.
func newHugePages() *hugePages {
	mode, err := os.ReadFile("/sys/kernel/mm/transparent_hugepage/enabled")
	if err != nil || !bytes.Contains(mode, []byte("[madvise]")) {
		return nil
	}
	return &hugePages{processorTime(), map[uintptr]struct{}{}}
}

// processorTime returns how much processor time the process has used.
func processorTime() time.Duration {
	var used unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_SELF, &used) // it cannot fail
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// advance puts more of the heap into huge pages if the process has used much processor time since the last call.
func (h *hugePages) advance() {
	if h == nil {
		return
	}
	last := h.processorTime
	if h.processorTime = processorTime(); h.processorTime-last >= minProcessorTime {
		h.collapse()
	}
}

// forget is called when free pages were returned to the system, also of huge pages.
func (h *hugePages) forget() {
	if h != nil {
		clear(h.collapsed)
	}
}

// collapse puts ranges of which half is present into huge pages, for maxCollapseTime. It returns the error of the
// last one that the system has refused.
func (h *hugePages) collapse() (refused error) {
	mappings, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return err
	}
	inHeap := new([64 << 10]byte) // too large for a stack
	began := time.Now()
	for _, m := range heapMappings(string(mappings), uintptr(unsafe.Pointer(inHeap))) {
		for at := (m.from + hugePageSize - 1) &^ (hugePageSize - 1); at+hugePageSize <= m.to; at += hugePageSize {
			if _, asked := h.collapsed[at]; asked || present(at, hugePageSize) < minPresent {
				continue
			}
			h.collapsed[at] = struct{}{}
			if _, _, err := unix.Syscall(unix.SYS_MADVISE, at, hugePageSize, unix.MADV_COLLAPSE); err != 0 {
				refused = err
			}
			if time.Since(began) > maxCollapseTime {
				return refused
			}
		}
	}
	return refused
}

// present returns how many bytes of a range are present in memory. at is the address of a page.
func present(at, length uintptr) (n uintptr) {
	page := uintptr(os.Getpagesize())
	states := make([]byte, length/page)
	if _, _, err := unix.Syscall(unix.SYS_MINCORE, at, length, uintptr(unsafe.Pointer(unsafe.SliceData(states)))); err != 0 {
		return 0
	}
	for _, state := range states {
		n += uintptr(state&1) * page
	}
	return n
}

// A mapping is a range of addresses.
type mapping struct{ from, to uintptr }

// heapMappings returns the writable mappings of the heap in the lines of /proc/self/maps: those that adjoin the
// one with an address in the heap, because the runtime lets the heap grow without gaps while there is room.
func heapMappings(lines string, inHeap uintptr) (heap []mapping) {
	var end uintptr // of the last mapping
	found := false  // the heap has inHeap
	for line := range strings.Lines(lines) {
		m, permissions, err := parseMapping(line)
		if err != nil {
			return nil
		}
		if m.from != end {
			if found {
				break
			}
			heap = nil
		}
		end, found = m.to, found || m.from <= inHeap && inHeap < m.to
		if strings.HasPrefix(permissions, "rw") {
			heap = append(heap, m)
		}
	}
	if !found {
		return nil
	}
	return heap
}

// parseMapping parses a line of /proc/self/maps.
func parseMapping(line string) (m mapping, permissions string, err error) {
	addresses, rest, _ := strings.Cut(line, " ")
	from, to, _ := strings.Cut(addresses, "-")
	first, err := strconv.ParseUint(from, 16, strconv.IntSize)
	if err != nil {
		return mapping{}, "", err
	}
	end, err := strconv.ParseUint(to, 16, strconv.IntSize)
	permissions, _, _ = strings.Cut(rest, " ")
	return mapping{uintptr(first), uintptr(end)}, permissions, err
}
