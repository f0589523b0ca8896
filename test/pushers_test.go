package test

import (
	"fmt"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/weir-proxy/weir/test/await"
	"github.com/weir-proxy/weir/test/redistest"
)

// Who comes second, through whichever node, is told who pushes.
func TestPush_TwoAtOnceOneIsTold(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	nodes := startFollowers(t, server.Addr, 3)
	nodes[1].Signal(syscall.SIGSTOP) // so that the first one lasts
	done := make(chan string, 1)
	go func() {
		_, stdout, stderr := nodes[0].push(revisionYAML(1), "ann")
		done <- stdout + stderr
	}()
	underWay(t, server.Addr)
	for _, w := range []*weir{nodes[0], nodes[2]} {
		code, stdout, stderr := w.push(revisionYAML(2), "bob")
		if code != 1 || !strings.Contains(stderr, "ann has been pushing") {
			t.Errorf("the second push exits %d: %s%s; want that ann pushes", code, stdout, stderr)
		}
	}
	nodes[1].Signal(syscall.SIGCONT)
	if said := <-done; !strings.Contains(said, "served by 3 of 3 nodes") {
		t.Errorf("the first push says %s", said)
	}
	allServe(t, nodes, 1)
}

// Of pushers that begin at the same moment at least one wins, each that does not is
// told by whom, or that another was faster, and all nodes serve what the last
// winner pushed.
func TestPush_ManyAtTheSameMoment(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	nodes := startFollowers(t, server.Addr, 3)
	for round := range 3 {
		type outcome struct {
			code int
			said string
		}
		outcomes, gate := make([]outcome, len(nodes)), make(chan struct{})
		var pushers sync.WaitGroup
		for i, w := range nodes {
			pushers.Go(func() {
				<-gate
				code, stdout, stderr := w.push(revisionYAML(10*round+i+1), fmt.Sprint("author", i))
				outcomes[i] = outcome{code, stdout + stderr}
			})
		}
		close(gate)
		pushers.Wait()
		won := map[string]bool{}
		for i, o := range outcomes {
			switch {
			case o.code == 0:
				won[fmt.Sprint(10*round+i+1)] = true
			case !strings.Contains(o.said, "has been pushing") && !strings.Contains(o.said, "overtaken"):
				t.Errorf("pusher %d exits %d: %s", i, o.code, o.said)
			}
		}
		if len(won) == 0 {
			t.Fatalf("nobody has won: %v", outcomes)
		}
		var serves string
		await.Until(t, "all serve one revision", func() bool {
			serves = nodes[0].servedRevision()
			return nodes[1].servedRevision() == serves && nodes[2].servedRevision() == serves
		})
		if !won[serves] {
			t.Errorf("revision %s is served, whose pusher was told that it lost; those that won are %v", serves, won)
		}
	}
}
