package node

import (
	"context"
	"crypto/ed25519"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	goredis "github.com/redis/go-redis/v9"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy/admin"
	"github.com/weir-proxy/weir/proxy/cluster"
	"github.com/weir-proxy/weir/proxy/config/bundle"
	"github.com/weir-proxy/weir/proxy/view"
	"github.com/weir-proxy/weir/test/await"
	"github.com/weir-proxy/weir/test/redistest"
)

// startFollower is a node that serves what is pushed, and a client of its API.
func startFollower(t *testing.T, addr string) (*testNode, admin.Client) {
	t.Helper()
	n := mustStart(t, writeConfig(t, "store: redis\nredis: {addrs: ['"+addr+"'], timeout: 5s}\nreload: {source: redis, keep: "+filepath.Join(t.TempDir(), "kept.json")+"}\n"))
	await.Until(t, "the node is heard of", func() bool { // else a push does not wait for it
		nodes, _, err := n.nodes(t.Context())
		return err == nil && slices.ContainsFunc(nodes, func(m view.Member) bool { return m.ID == n.store.id })
	})
	return n, admin.Client{Address: n.Address("admin")}
}

// limitBundle is a configuration with a limit, as it is pushed.
func limitBundle(t *testing.T, rate string) bundle.Bundle {
	t.Helper()
	b, err := bundle.Pack(write(t, "routes: [{name: a, match: {path: /a}, respond: {body: a}, limits: [{name: user, key: 'header:X-User', rate: "+rate+"}]},\n"+
		"  {match: {path: /rate}, respond: {body: '"+rate+"'}}]\n"))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestPush_AllNodesServeIt(t *testing.T) {
	server := redistest.Start(t)
	one, client := startFollower(t, server.Addr)
	two, _ := startFollower(t, server.Addr)
	await.Until(t, "the nodes know each other", func() bool {
		nodes, _, err := one.nodes(t.Context())
		return err == nil && len(nodes) == 2
	})

	dry, err := admin.Post[admin.Pushed](t.Context(), client, "/push", admin.Push{Bundle: limitBundle(t, "5/1h"), Author: "ann", DryRun: true})
	if err != nil || !dry.DryRun || dry.Changed || len(dry.Nodes) != 2 || len(dry.Changes) == 0 {
		t.Errorf("dry run = %+v, %v; want what two nodes say of it", dry, err)
	}
	first, err := admin.Post[admin.Pushed](t.Context(), client, "/push", admin.Push{Bundle: limitBundle(t, "5/1h"), Author: "ann"})
	if err != nil || !first.Changed || len(first.Nodes) != 2 {
		t.Fatalf("push = %+v, %v; want a change on two nodes", first, err)
	}
	for _, n := range []*testNode{one, two} {
		n.waitForLog("serving pushed config")
		if got := fetch(t, "http://"+n.Address("http")+"/rate"); got != "5/1h" {
			t.Errorf("a node serves %q", got)
		}
		await.Until(t, "the push is kept for a start without Redis", func() bool {
			k, err := n.source.readKept() // it is written after the answer
			return err == nil && k.Generation == first.Generation
		}, n.log)
	}
	again, err := admin.Post[admin.Pushed](t.Context(), client, "/push", admin.Push{Bundle: limitBundle(t, "5/1h"), Author: "ann"})
	if err != nil || again.Changed || again.Restored || again.Generation != first.Generation {
		t.Errorf("the same again = %+v, %v; want no change", again, err)
	}
	second, err := admin.Post[admin.Pushed](t.Context(), client, "/push", admin.Push{Bundle: limitBundle(t, "3/1h"), Author: "bob"})
	if err != nil || second.Generation != first.Generation+1 {
		t.Fatalf("second push = %+v, %v", second, err)
	}
	if len(first.Warnings)+len(second.Warnings) != 0 {
		t.Errorf("warnings: %q, %q", first.Warnings, second.Warnings)
	}
	open, err := bundle.Pack(write(t, "routes: [{match: {path: /a}, respond: {body: a}}]\n"))
	if err != nil {
		t.Fatal(err)
	}
	if dry, err = admin.Post[admin.Pushed](t.Context(), client, "/push", admin.Push{Bundle: open, Author: "ann", DryRun: true}); err != nil || !slices.Contains(dry.Warnings, "no limit is enforced") {
		t.Errorf("a push without limits: %+v, %v", dry, err)
	}
	if h, err := admin.Get[admin.History](t.Context(), client, "/history"); err != nil || len(h.History) != 2 || h.History[0].Author != "bob" || h.History[1].Author != "ann" {
		t.Errorf("history = %+v, %v; want bob's, then ann's", h, err)
	}
	if d, err := admin.Get[admin.Diff](t.Context(), client, fmt.Sprint("/history/", second.Generation)); err != nil || !strings.Contains(d.Diff, "\n-") || !strings.Contains(d.Diff, "rate: 3/1h") || d.Oldest {
		t.Errorf("diff = %+v, %v; want both lines", d, err)
	}
	if d, err := admin.Get[admin.Diff](t.Context(), client, fmt.Sprint("/history/", first.Generation)); err != nil || !d.Oldest || len(d.Changes) == 0 || !strings.Contains(fmt.Sprint(d.Changes), "limit a.user added: ") {
		t.Errorf("diff of the first push = %+v, %v; want all of it", d, err)
	}
	back, err := admin.Post[admin.Pushed](t.Context(), client, "/rollback", admin.Rollback{Author: "ann"})
	if err != nil || back.Generation != second.Generation+1 || back.Hash != first.Hash {
		t.Errorf("rollback = %+v, %v; want ann's as a new generation", back, err)
	}
}

// A reload beside a push is not refused: it reads what is served by then.
func TestPush_BesideReloads(t *testing.T) {
	n, client := startFollower(t, redistest.Start(t).Addr)
	if _, err := admin.Post[admin.Pushed](t.Context(), client, "/push", admin.Push{Bundle: pushedBundle(t, "first")}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var reloads sync.WaitGroup
	reloads.Go(func() {
		for ctx.Err() == nil {
			if err := n.Reload(t.Context()); err != nil {
				t.Errorf("a reload beside a push: %v", err)
			}
		}
	})
	for i := range 5 {
		text := fmt.Sprint("push ", i)
		_, err := admin.Post[admin.Pushed](t.Context(), client, "/push", admin.Push{Bundle: pushedBundle(t, text)})
		if got := fetch(t, "http://"+n.Address("http")+"/pushed"); err != nil || got != text {
			t.Errorf("a push beside reloads: %v, and %q is served", err, got)
		}
	}
	cancel()
	reloads.Wait()
}

// Files of the machine that a reload has read while nodes were asked stay read when the push is served.
func TestPush_KeepsWhatAReloadHasRead(t *testing.T) {
	n, client := startFollower(t, redistest.Start(t).Addr)
	writeKey := func() (token string) {
		public, private, err := ed25519.GenerateKey(nil)
		if err != nil {
			t.Fatal(err)
		}
		text, err := x509.MarshalPKIXPublicKey(public)
		if err != nil {
			t.Fatal(err)
		}
		replaceFile(t, filepath.Join(filepath.Dir(n.source.path), "key.pem"), string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: text})))
		token, err = jwt.NewWithClaims(jwt.SigningMethodEdDSA, jwt.MapClaims{"sub": "ann", "exp": time.Now().Add(time.Hour).Unix()}).SignedString(private)
		if err != nil {
			t.Fatal(err)
		}
		return token
	}
	push := func(body string) {
		b, err := bundle.Pack(write(t, "jwt: {keys: [key.pem]}\nroutes: [{match: {path: /a}, respond: {body: "+body+"}, limits: [{key: 'jwt:sub', rate: 5/1h}]}]\n"))
		if err == nil {
			_, err = admin.Post[admin.Pushed](t.Context(), client, "/push", admin.Push{Bundle: b})
		}
		if err != nil {
			t.Error(err)
		}
	}
	writeKey()
	push("one")
	redis, prefix, ghost := n.store.client, n.store.prefix+":{cluster}:", "a node that has not answered"
	if err := redis.ZAdd(t.Context(), prefix+"nodes", goredis.Z{Score: float64(time.Now().Add(time.Minute).UnixMilli()), Member: ghost}).Err(); err != nil {
		t.Fatal(err)
	}
	var pushing sync.WaitGroup
	pushing.Go(func() { push("two") })
	await.Until(t, "this node has answered", func() bool {
		return redis.HGet(t.Context(), prefix+"push", "answer:"+n.store.id).Val() == "ok"
	})
	token := writeKey()
	if err := n.Reload(t.Context()); err != nil {
		t.Fatal(err)
	}
	redis.HSet(t.Context(), prefix+"push", "answer:"+ghost, "ok")
	await.Until(t, "the push is served", func() bool { number, _ := n.proxy.Serving(); return number == 3 })
	redis.ZRem(t.Context(), prefix+"nodes", ghost)
	pushing.Wait()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+n.Address("http")+"/a", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+token)
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	if response.StatusCode != http.StatusOK {
		t.Errorf("a token of the new key: %d; want 200", response.StatusCode)
	}
}

// What cannot be done says why, with the status for it.
func TestPush_RefusalsHaveAStatus(t *testing.T) {
	server := redistest.Start(t)
	n, client := startFollower(t, server.Addr)
	bad, err := bundle.Pack(write(t, "routes: [{match: {path: /a}, respond: {body: a}}]\nlisten: {http: '127.0.0.1:0'}\nkeys: {salt_file: gone}\n"))
	if err == nil {
		_, err = admin.Post[admin.Pushed](t.Context(), client, "/push", admin.Push{Bundle: bad, Author: "ann"})
	}
	var why *admin.Problem
	if !errors.As(err, &why) || why.Status != http.StatusUnprocessableEntity || len(why.Problems) == 0 {
		t.Errorf("push of what does not load: %v; want 422 and the problems", err)
	}
	if got := n.waitForLog("push refused"); got["author"] != "ann" {
		t.Errorf("the log says %v; want who pushed in vain", got)
	}
	for what, ask := range map[string]func() error{
		"rollback": func() error {
			_, err := admin.Post[admin.Pushed](t.Context(), client, "/rollback", admin.Rollback{Generation: 9})
			return err
		},
		"diff": func() error {
			_, err := admin.Get[admin.Diff](t.Context(), client, fmt.Sprint("/history/", 9))
			return err
		},
	} {
		if err := ask(); !errors.As(err, &why) || why.Status != http.StatusNotFound {
			t.Errorf("%s of a generation that never was: %v; want 404", what, err)
		}
	}
	server.Kill()
	if _, err := admin.Get[admin.History](t.Context(), client, "/history"); !errors.As(err, &why) || why.Status != http.StatusServiceUnavailable {
		t.Errorf("history while Redis is away: %v; want 503", err)
	}
	for path, body := range map[string]any{"/push": admin.Push{Bundle: limitBundle(t, "1/1h")}, "/rollback": admin.Rollback{}} {
		_, err := admin.Post[admin.Pushed](t.Context(), client, path, body)
		if !errors.As(err, &why) || why.Status != http.StatusServiceUnavailable || !strings.HasPrefix(why.Detail, "redis is unreachable: ") || !strings.Contains(why.Detail, "; nothing has changed, ") {
			t.Errorf("%s while Redis is away: %v; want what is wrong, and what to do", path, err)
		}
	}
}

// What cannot be done without Redis begins with that, and not with what noticed it.
func TestWhileAway(t *testing.T) {
	refused := &net.OpError{Op: "dial", Err: &os.SyscallError{Syscall: "connect", Err: syscall.ECONNREFUSED}}
	const away = "redis is unreachable: connect: connection refused; again later"
	for want, err := range map[string]error{
		away: fmt.Errorf("check for data lost by redis: %w", refused),
		"redis is unreachable: breaker open; again later": fmt.Errorf("sms.phone: %w: breaker open", limiter.ErrUnavailable),
		"no such thing": errors.New("no such thing"),
	} {
		if got := whileAway(err, "again later"); got == nil || got.Error() != want {
			t.Errorf("%v is told as %v; want %s", err, got, want)
		}
	}
	if err := whileAway(fmt.Errorf("%w: %w", cluster.ErrUnknown, refused), "again later"); !errors.Is(err, cluster.ErrUnknown) {
		t.Errorf("an unknown outcome is told as %v", err)
	}
	if err := whileAway(nil, "again later"); err != nil {
		t.Error(err)
	}
}

// Where the file is served nothing can be pushed, and the answer says what to write.
func TestPush_WhereTheFileIsServed(t *testing.T) {
	n := mustStart(t, writeConfig(t, ""))
	_, err := admin.Post[admin.Pushed](t.Context(), admin.Client{Address: n.Address("admin")}, "/push", admin.Push{Bundle: limitBundle(t, "1/1h")})
	var why *admin.Problem
	if !errors.As(err, &why) || why.Status != http.StatusConflict || !strings.Contains(why.Detail, "source: redis") {
		t.Errorf("push: %v; want 409 and what to write", err)
	}
}

func TestPlan_SaysWhoWouldBeRefused(t *testing.T) {
	server := redistest.Start(t)
	n, client := startFollower(t, server.Addr)
	if _, err := admin.Post[admin.Pushed](t.Context(), client, "/push", admin.Push{Bundle: limitBundle(t, "5/1h")}); err != nil {
		t.Fatal(err)
	}
	if got := allowedUsers(t, n.Address("http"), "a", "a", "a", "b"); got != "++++" {
		t.Fatalf("passed %s", got)
	}
	p, err := admin.Post[admin.Plan](t.Context(), client, "/plan", admin.Push{Bundle: limitBundle(t, "2/1h")})
	if err != nil || len(p.Changes) == 0 || !p.Whole || p.Looked != 2 || len(p.Refused) != 1 || p.Refused[0].Keys != 1 || len(p.Refused[0].Named) != 1 {
		t.Errorf("plan = %+v, %v; want one of two keys refused", p, err)
	}
	if got := allowedUsers(t, n.Address("http"), "a", "a", "a"); got != "++-" {
		t.Errorf("after the plan %s passed; want that it changed and took nothing", got)
	}
}

func TestPlan_WithoutRedis(t *testing.T) {
	path := writeConfig(t, "")
	n := mustStart(t, path)
	client := admin.Client{Address: n.Address("admin")}
	same, err := bundle.Pack(path)
	if err != nil {
		t.Fatal(err)
	}
	if p, err := admin.Post[admin.Plan](t.Context(), client, "/plan", admin.Push{Bundle: same}); err != nil || len(p.Changes) != 0 || !strings.Contains(p.Unknown, "memory") {
		t.Errorf("plan of what is served = %+v, %v; want no change, and why counts are not known", p, err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	other, err := bundle.Pack(write(t, strings.Replace(string(text), "listen: {", "listen: {max_header: 9KiB, ", 1)))
	if err != nil {
		t.Fatal(err)
	}
	if p, err := admin.Post[admin.Plan](t.Context(), client, "/plan", admin.Push{Bundle: other}); err != nil || !strings.Contains(p.Restart, "restart") {
		t.Errorf("plan of what a running weir cannot change = %+v, %v; want that it needs a restart", p, err)
	}
}

// A Redis that has lost what was pushed gets it back by a push of the same.
func TestPush_RestoresWhatRedisHasLost(t *testing.T) {
	server := redistest.Start(t)
	n, client := startFollower(t, server.Addr)
	if _, err := admin.Post[admin.Pushed](t.Context(), client, "/push", admin.Push{Bundle: limitBundle(t, "5/1h"), Author: "ann"}); err != nil {
		t.Fatal(err)
	}
	n.waitForLog("serving pushed config")
	for range 20 { // a sign of life may give it back before the push does
		if err := n.store.client.FlushAll(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
		again, err := admin.Post[admin.Pushed](t.Context(), client, "/push", admin.Push{Bundle: limitBundle(t, "5/1h"), Author: "ann"})
		if err != nil || again.Changed {
			t.Fatalf("the same again = %+v, %v", again, err)
		}
		if again.Restored {
			n.waitForLog("published again; redis had lost it")
			if h, err := admin.Get[admin.History](t.Context(), client, "/history"); err != nil || len(h.History) != 1 || h.History[0].Author != "ann" {
				t.Errorf("history = %+v, %v; want ann's push", h, err)
			}
			return
		}
	}
	t.Error("nothing was restored")
}

// A node that starts serves what was pushed, whatever its own file says.
func TestPush_NodesThatStartServeIt(t *testing.T) {
	server := redistest.Start(t)
	_, client := startFollower(t, server.Addr)
	pushed, err := admin.Post[admin.Pushed](t.Context(), client, "/push", admin.Push{Bundle: limitBundle(t, "5/1h"), Author: "ann"})
	if err != nil {
		t.Fatal(err)
	}
	next, _ := startFollower(t, server.Addr)
	if number, c := next.proxy.Serving(); number != pushed.Generation || c.Hash != pushed.Hash {
		t.Errorf("a new node serves generation %d, %s; want %d", number, c.Hash, pushed.Generation)
	}
	if got := fetch(t, "http://"+next.Address("http")+"/rate"); got != "5/1h" {
		t.Errorf("a new node serves %q", got)
	}
}

// What the others decided and this node cannot serve is said in its log and on readyz.
func TestPush_WhatCannotBeFollowedIsSaid(t *testing.T) {
	n, _ := startFollower(t, redistest.Start(t).Addr)
	n.pushApplied(cluster.Entry{Entry: view.Entry{Generation: 7}}, errors.New("no such file"))
	if _, err := n.reload(t.Context()); err != nil { // of the file, which does not replace what was pushed
		t.Error(err)
	}
	if ready := fetch(t, "http://"+n.Address("admin")+"/readyz"); !strings.Contains(ready, "refused since") {
		t.Errorf("readyz says %s after a push that was refused", ready)
	}
	if got := n.waitForLog("cannot serve pushed config"); got["generation"] != 7.0 || got["error"] != "no such file" {
		t.Errorf("the log says %v", got)
	}
	n.source.machine.Reload.Keep = filepath.Join(t.TempDir(), "gone", "kept.json")
	n.pushApplied(cluster.Entry{Entry: view.Entry{Generation: 8}, Bundle: limitBundle(t, "1/1h")}, nil)
	n.waitForLog("cannot write reload.keep")
	if ready := fetch(t, "http://"+n.Address("admin")+"/readyz"); strings.Contains(ready, "refused since") {
		t.Errorf("readyz says %s after a push that went well", ready)
	}
}

func TestPush_ErrorsOfTheClusterHaveAStatus(t *testing.T) {
	for _, row := range []struct {
		err  error
		want admin.Problem
	}{
		{&cluster.RefusedError{Answers: []view.NodeAnswer{{Node: "n", Said: "cannot"}}}, admin.Problem{Status: 409, Nodes: []view.NodeAnswer{{Node: "n", Said: "cannot"}}}},
		{&cluster.PushInProgressError{Author: "ann", Node: "n"}, admin.Problem{Status: 409, Author: "ann", Node: "n"}},
		{cluster.ErrOvertaken, admin.Problem{Status: 409}},
	} {
		row.want.Detail = row.err.Error()
		var got *admin.Problem
		if !errors.As(problemOf(row.err), &got) || !reflect.DeepEqual(*got, row.want) {
			t.Errorf("%v is told as %+v; want %+v", row.err, got, row.want)
		}
	}
	if other := errors.New("redis is away"); problemOf(other) != other || problemOf(nil) != nil {
		t.Error("other errors are told otherwise than as they are")
	}
}

func TestPush_DiffsOfFiles(t *testing.T) {
	was := bundle.Bundle{Main: "a", Files: map[string]string{"a": "one\ntwo\n", "same": "s\n", "gone": "g\n"}}
	is := bundle.Bundle{Main: "a", Files: map[string]string{"a": "one\n2\n", "same": "s\n", "new": "n\n"}}
	got := compareFiles(was, is)
	for _, want := range []string{"--- a/a\n+++ b/a\n", "\n-two\n", "\n+2\n", "+++ b/new\n", "\n+n\n", "--- a/gone\n", "\n-g\n"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in:\n%s", want, got)
		}
	}
	if strings.Contains(got, "same") || compareFiles(was, was) != "" {
		t.Errorf("files that are the same are told of:\n%s", got)
	}
	if got := compareFiles(bundle.Bundle{}, is); !strings.Contains(got, "\n+n\n") {
		t.Errorf("no file of the first push in:\n%s", got)
	}
}

// A rollback leads away from what was rolled back, however often it is repeated.
func TestRollbackTo(t *testing.T) {
	type push struct {
		contents string
		from     int64 // for a rollback
	}
	for name, c := range map[string]struct {
		pushes []push // the first is generation 1
		want   int64
	}{
		"nothing":                     {nil, 0},
		"one push":                    {[]push{{"a", 0}}, 0},
		"the one before":              {[]push{{"a", 0}, {"bad", 0}}, 1},
		"once more: not the bad one":  {[]push{{"z", 0}, {"a", 0}, {"bad", 0}, {"a", 2}}, 1},
		"once more: nothing is left":  {[]push{{"a", 0}, {"bad", 0}, {"a", 1}}, 0},
		"thrice":                      {[]push{{"y", 0}, {"z", 0}, {"a", 0}, {"bad", 0}, {"a", 3}, {"z", 2}}, 1},
		"the same contents once more": {[]push{{"z", 0}, {"a", 0}, {"a", 0}}, 1},
		"bad was pushed twice":        {[]push{{"z", 0}, {"bad", 0}, {"a", 0}, {"bad", 0}, {"a", 3}}, 1},
		"after a rollback a new push": {[]push{{"a", 0}, {"bad", 0}, {"a", 1}, {"new", 0}}, 3},
		"its origin is forgotten":     {[]push{{"z", 0}, {"bad", 0}, {"a", -1}}, 1},
	} {
		var entries []cluster.Entry
		for i, p := range c.pushes {
			e := cluster.Entry{Entry: view.Entry{Generation: int64(i + 1), From: p.from}, Bundle: bundle.Bundle{Main: "m", Files: map[string]string{"m": p.contents}}}
			entries = append([]cluster.Entry{e}, entries...)
		}
		got := int64(0)
		if i := rollbackTo(entries); i >= 0 {
			got = entries[i].Generation
		}
		if got != c.want {
			t.Errorf("%s: generation %d, want %d", name, got, c.want)
		}
	}
}

func TestCompareFiles_RootWithRoot(t *testing.T) {
	was := bundle.Bundle{Main: "weir.yaml", Files: map[string]string{"weir.yaml": "one\ntwo\n", "list.txt": "a\n"}}
	is := bundle.Bundle{Main: "strict.yaml", Files: map[string]string{"strict.yaml": "one\nthree\n", "list.txt": "a\n"}}
	got := compareFiles(was, is)
	if !strings.Contains(got, "\n one\n-two\n+three\n") || strings.Contains(got, "list.txt") {
		t.Errorf("%s\nwant one line changed", got)
	}
}

// A push that changes nothing is none, and a dry run of a rollback is no rollback: neither is in the history or the
// audit trail. The sender is the author if nobody else is named.
func TestPush_OfNothingIsNone(t *testing.T) {
	server := redistest.Start(t)
	n, client := startFollower(t, server.Addr)
	first, err := admin.Post[admin.Pushed](t.Context(), client, "/push", admin.Push{Bundle: limitBundle(t, "5/1h"), Sender: "ann@host"})
	if err != nil {
		t.Fatal(err)
	}
	n.waitForLog("serving pushed config")
	renamed := limitBundle(t, "5/1h")
	text := renamed.Files[renamed.Main]
	again, err := admin.Post[admin.Pushed](t.Context(), client, "/push", admin.Push{Bundle: bundle.Bundle{Main: "other.yaml", Files: map[string]string{"other.yaml": text}}, Author: "bob"})
	if err != nil || again.Changed || again.Generation != first.Generation || len(again.Changes) != 0 {
		t.Errorf("the same under another name = %+v, %v; want no change", again, err)
	}
	if _, err := admin.Post[admin.Pushed](t.Context(), client, "/push", admin.Push{Bundle: limitBundle(t, "3/1h"), Author: "bob"}); err != nil {
		t.Fatal(err)
	}
	would, err := admin.Post[admin.Pushed](t.Context(), client, "/rollback", admin.Rollback{DryRun: true})
	if err != nil || would.From != first.Generation || len(would.Changes) != 2 || would.Changes[0].String() != "a.user: 3/1h → 5/1h" {
		t.Errorf("dry run = %+v, %v; want the rate of ann's push", would, err)
	}
	h, err := admin.Get[admin.History](t.Context(), client, "/history")
	if err != nil || len(h.History) != 2 || h.History[1].Author != "ann@host" {
		t.Errorf("history = %+v, %v; want two pushes", h, err)
	}
	if trail, err := client.AuditPage(t.Context(), view.AuditQuery{}); err != nil || len(trail.Entries) != 2 {
		t.Errorf("audit = %+v, %v; want two pushes", trail, err)
	}
	if d, err := admin.Get[admin.Diff](t.Context(), client, fmt.Sprint("/history/", h.History[0].Generation)); err != nil || len(d.Changes) != 2 || d.Changes[0].String() != "a.user: 5/1h → 3/1h" {
		t.Errorf("diff = %+v, %v; want the rates", d, err)
	}
}
