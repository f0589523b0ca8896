package node

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"testing"
)

// The pages of the program leave the process, which goes on.
func TestReleaseProgram(t *testing.T) {
	before := residentOfFiles(t)
	if err := releaseProgram(); err != nil {
		t.Fatal(err)
	}
	if after := residentOfFiles(t); after >= before {
		t.Errorf("%d KB of files are resident, %d before", after, before)
	}
}

// residentOfFiles returns how many KB of mapped files are in the process.
func residentOfFiles(t *testing.T) int {
	t.Helper()
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`RssFile:\s+(\d+) kB`).FindSubmatch(text)
	if found == nil {
		t.Fatal("the system does not say what is resident of files")
	}
	n, err := strconv.Atoi(string(found[1]))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// What was written, by a linker (RELRO) or a debugger, stays, and so does what is no part of the program.
func TestUnchangedMappings(t *testing.T) {
	one := func(addresses, permissions, file, anonymous string) string {
		return fmt.Sprintf("%s %s 00000000 fe:00 11682327                           %s\nSize:  16 kB\nAnonymous: %s kB\nVmFlags: rd mr mw\n", addresses, permissions, file, anonymous)
	}
	smaps := one("00400000-00500000", "r-xp", "/usr/bin/a weir", "       0") +
		one("00500000-00600000", "r--p", "/usr/bin/a weir", "       4") +
		one("00600000-00700000", "r--p", "/usr/bin/a weir", "       0") +
		one("00700000-00800000", "rw-p", "/usr/bin/a weir", "       0") +
		one("7f0000000000-7f0000100000", "r-xp", "/usr/lib/libc.so.6", "       0") +
		one("7fff00000000-7fff00100000", "rw-p", "[stack]", "      12")
	want := []mapping{{0x400000, 0x500000}, {0x600000, 0x700000}}
	if got := unchangedMappings(smaps, "/usr/bin/a weir"); !slices.Equal(got, want) {
		t.Errorf("%x; want %x", got, want)
	}
}
