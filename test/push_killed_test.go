package test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/weir-proxy/weir/test/await"
	"github.com/weir-proxy/weir/test/redistest"
)

// An interruptedPush is a push whose node, which is killed, reaches Redis through a
// proxy, while others reach it at once.
type interruptedPush struct {
	server *redistest.Server
	proxy  *redistest.FaultProxy
	pusher *weir
	others []*weir
}

// Whatever a pusher was doing when it was killed, all others serve one revision,
// and the next push is served by all.
func TestPush_KilledAtEachStep(t *testing.T) {
	t.Parallel()
	for _, step := range []struct {
		name   string
		killed func(t *testing.T, p interruptedPush)
		serves int // what the others are left with
	}{
		{"before all have answered", func(t *testing.T, p interruptedPush) {
			p.others[0].Signal(syscall.SIGSTOP)
			go p.pusher.pushIgnored(revisionYAML(1))
			underWay(t, p.server.Addr)
			p.pusher.Kill()
			p.others[0].Signal(syscall.SIGCONT)
		}, 0},
		{"when it could decide", func(t *testing.T, p interruptedPush) {
			go p.pusher.pushIgnored(revisionYAML(1))
			underWay(t, p.server.Addr)
			c := redisClient(t, p.server.Addr)
			p.proxy.Hold() // what it does from here on it hears nothing of
			await.Until(t, "the others have answered, or it is decided", func() bool {
				push := c.HGetAll(t.Context(), "weir:{cluster}:push").Val()
				return len(push) >= 6+2 || len(push) == 0
			})
			p.pusher.Kill()
		}, -1},
		{"when it has decided", func(t *testing.T, p interruptedPush) {
			p.pusher.pushIgnored(revisionYAML(0)) // now Redis knows the script that decides
			p.proxy.Lose("weir:{cluster}:history\r\n$20\r\nweir:{cluster}:nodes")
			go p.pusher.pushIgnored(revisionYAML(1))
			await.Until(t, "the decision is lost on its way back", func() bool { return p.proxy.Lost() > 0 })
			p.pusher.Kill()
		}, 1},
		{"while it waits for all to serve it", func(t *testing.T, p interruptedPush) {
			c := redisClient(t, p.server.Addr)
			before := c.HGet(t.Context(), "weir:{cluster}:config", "number").Val()
			go p.pusher.pushIgnored(revisionYAML(1))
			await.Until(t, "it is decided", func() bool {
				return c.HGet(t.Context(), "weir:{cluster}:config", "number").Val() != before
			})
			p.pusher.Kill()
		}, 1},
	} {
		t.Run(step.name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			p := redistest.NewFaultProxy(t, server.Addr)
			pusher := start(t, followerYAML(p.Addr))
			others := startMoreFollowers(t, server.Addr, 2)
			step.killed(t, interruptedPush{server, p, pusher, others})
			c := redisClient(t, server.Addr)
			// It is forgotten as a node, and so is what it did not decide.
			await.Within(t, 2*testTimeout, "the push is over", func() bool {
				return c.Exists(t.Context(), "weir:{cluster}:push").Val() == 0 && len(heartbeats(t, c)) == 2
			})
			want := step.serves
			if want < 0 {
				fmt.Sscan(others[0].servedRevision(), &want)
			}
			allServe(t, others, want)
			p.Release()
			back := startWith(t, pusher.Dir, "-c", pusher.File)
			allServe(t, []*weir{back}, want)
			others = append(others, back)
			code, stdout, stderr := others[1].push(revisionYAML(7), "ann")
			if code != 0 {
				t.Errorf("the next push exits %d: %s%s", code, stdout, stderr)
			}
			allServe(t, others, 7)
		})
	}
}

// startMoreFollowers is fleet for nodes that come to one that is there already.
func startMoreFollowers(t *testing.T, addr string, n int) []*weir {
	t.Helper()
	var nodes []*weir
	for range n {
		nodes = append(nodes, start(t, followerYAML(addr)))
	}
	waitForNodes(t, addr, n+1)
	return nodes
}

// pushIgnored asks w to push, and does not care what comes of it.
func (w *weir) pushIgnored(text string) {
	body, _ := json.Marshal(map[string]any{"author": "bob", "bundle": map[string]any{"main": "a.yaml", "files": map[string]string{"a.yaml": text}}})
	res, err := http.Post(w.Admin+"/api/v1/push", "application/json", strings.NewReader(string(body)))
	if err == nil {
		res.Body.Close()
	}
}

// underWay waits until a push is.
func underWay(t *testing.T, addr string) {
	t.Helper()
	c := redisClient(t, addr)
	await.Until(t, "a push is under way", func() bool {
		return c.Exists(t.Context(), "weir:{cluster}:push").Val() == 1
	})
}

// Killing the command is no way to leave a push half done either.
func TestPush_CommandKilled(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	nodes := startFollowers(t, server.Addr, 2)
	nodes[1].Signal(syscall.SIGSTOP)
	dir := t.TempDir()
	write(t, dir+"/next.yaml", revisionYAML(1))
	cmd := exec.Command("weir", "push", "next.yaml", "--admin", nodes[0].Admin)
	cmd.Dir = dir
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	underWay(t, server.Addr)
	cmd.Process.Kill()
	cmd.Wait()
	c := redisClient(t, server.Addr)
	await.Until(t, "the push is undone", func() bool {
		return c.Exists(t.Context(), "weir:{cluster}:push").Val() == 0
	})
	nodes[1].Signal(syscall.SIGCONT)
	allServe(t, nodes, 0)
}
