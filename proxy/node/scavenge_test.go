package node

import (
	"runtime"
	"testing"
)

func TestScavenger_GivesBackWhatARushHasLeft(t *testing.T) {
	const mib = 1 << 20
	var th scavenger
	for i, step := range []struct {
		why  string
		now  memoryUse
		want bool
	}{
		{"little has been used yet", memoryUse{6 * mib, 6 * mib, mib}, false},
		{"a rush", memoryUse{300 * mib, 200 * mib, mib}, false},
		{"the rush goes on", memoryUse{900 * mib, 250 * mib, mib}, false},
		{"it is over", memoryUse{901 * mib, 250 * mib, mib}, true},
		{"nothing is left to give", memoryUse{902 * mib, 100 * mib, 0}, false},
		{"some requests", memoryUse{909 * mib, 107 * mib, 0}, false},
		{"and some more", memoryUse{916 * mib, 114 * mib, 0}, false},
		{"and more, a quarter of what is in use", memoryUse{923 * mib, 80 * mib, 0}, true},
		{"what the runtime has freed by itself", memoryUse{924 * mib, 80 * mib, 30 * mib}, true},
	} {
		if got := th.due(step.now); got != step.want {
			t.Errorf("%d, %s: %v; want %v", i, step.why, got, step.want)
		}
	}
}

func TestUsed_IsWhatTheRuntimeSays(t *testing.T) {
	before := readMemoryUse()
	kept := make([]byte, 10<<20)
	after := readMemoryUse()
	if after.allocated < before.allocated+10<<20 || after.live < 10<<20 {
		t.Errorf("used %+v, then %+v; want ten MiB more", before, after)
	}
	runtime.KeepAlive(kept)
}
