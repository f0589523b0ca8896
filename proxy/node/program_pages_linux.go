package node

import (
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// releaseProgram takes the pages of the program file out of the process (RSS), of which most are needed only to
// start: for each page that is touched the system maps the 15 around it. What is needed later is mapped
// again when it is touched, from the system's cache of files.
func releaseProgram() error {
	program, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return err
	}
	mappings, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		return err
	}
	for _, m := range unchangedMappings(string(mappings), program) {
		if _, _, err := unix.Syscall(unix.SYS_MADVISE, m.from, m.to-m.from, unix.MADV_DONTNEED); err != 0 {
			return err
		}
	}
	return nil
}

// A mapping is a range of addresses.
type mapping struct{ from, to uintptr }

// unchangedMappings returns the mappings of a file, in the text of /proc/self/smaps, that cannot be written and of which no
// page differs from the file: a page that does, because of a relocation or a breakpoint, would be lost.
func unchangedMappings(smaps, file string) (all []mapping) {
	var last mapping
	isOfFile := false
	for line := range strings.Lines(smaps) {
		name, rest, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		switch from, to, isRange := strings.Cut(name, "-"); {
		case isRange:
			last = mapping{address(from), address(to)}
			isOfFile = strings.HasPrefix(rest, "r-") && strings.HasSuffix(rest, " "+file)
		case name == "Anonymous:" && isOfFile && strings.Fields(rest)[0] == "0":
			all = append(all, last)
		}
	}
	return all
}

// address parses an address of /proc/self/smaps.
func address(hex string) uintptr {
	n, _ := strconv.ParseUint(hex, 16, strconv.IntSize)
	return uintptr(n)
}
