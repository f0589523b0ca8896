package node

import (
	"context"
	"testing"
	"time"
)

// The second node of one file answers once the first has ended.
func TestAlive_AsLongAsOneServesTheFile(t *testing.T) {
	path := file(t, "")
	if Alive(t.Context(), path) == nil {
		t.Fatal("alive before any node has begun")
	}
	one, two := serving(t, path), serving(t, path)
	eventually(t, func() bool { return Alive(t.Context(), path) == nil }, "no node answers")
	one.end()
	eventually(t, func() bool { return Alive(t.Context(), path) == nil }, "the second node does not answer")
	two.end()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if Alive(ctx, path) == nil {
		t.Error("alive after all have ended")
	}
}
