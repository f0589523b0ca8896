package node

import (
	"context"
	"testing"
	"time"
)

func TestReachable_OfAWildcardIsThisMachine(t *testing.T) {
	for addr, want := range map[string]string{
		":9901": "localhost:9901", "0.0.0.0:9901": "localhost:9901", "[::]:9901": "localhost:9901",
		"10.0.0.1:9901": "10.0.0.1:9901", "weir.example:9901": "weir.example:9901", "nonsense": "nonsense",
	} {
		if got := Reachable(addr); got != want {
			t.Errorf("Reachable(%s) = %s; want %s", addr, got, want)
		}
	}
}

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
