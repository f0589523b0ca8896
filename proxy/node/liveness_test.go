package node

import (
	"context"
	"testing"
	"time"

	"github.com/weir-proxy/weir/test/await"
)

// The second node of one file answers once the first has ended.
func TestAlive_AsLongAsOneServesTheFile(t *testing.T) {
	path := writeConfig(t, "")
	if Alive(t.Context(), path) == nil {
		t.Fatal("alive before any node has begun")
	}
	one, two := mustStart(t, path), mustStart(t, path)
	await.Until(t, "a node answers", func() bool { return Alive(t.Context(), path) == nil })
	one.end()
	await.Until(t, "the second node answers", func() bool { return Alive(t.Context(), path) == nil })
	two.end()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if Alive(ctx, path) == nil {
		t.Error("alive after all have ended")
	}
}
