package reuse

import (
	"bytes"
	"slices"
	"testing"
)

// Nobody who still holds the memory finds what a request left in it, in a build that is to show who does.
func TestMemory(t *testing.T) {
	text, names := append(make([]byte, 0, 8), "secret"...), append(make([]string, 0, 4), "a", "b")
	heldText, heldNames := text[:cap(text)], names[:cap(names)]
	text, names = Memory(text[:2]), Memory(names)
	if len(text)+len(names) > 0 || (text == nil) != Poisoned || (names == nil) != Poisoned {
		t.Errorf("got %q and %q", text, names)
	}
	if Poisoned && (bytes.Contains(heldText, []byte("s")) || slices.Contains(heldNames, "a") || slices.Contains(heldNames, "b")) {
		t.Errorf("%q and %q are not overwritten", heldText, heldNames)
	}
}
