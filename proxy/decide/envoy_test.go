package decide

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/rs/zerolog"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/weir-proxy/weir/proxy"
	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/proxy/internal/socket"
	"github.com/weir-proxy/weir/test/await"
)

const envoyRoutes = `
keys: {phone: {from: "descriptor:phone", set_header: X-Phone}, user: "descriptor:user"}
routes:
  - name: sms
    match: {domain: edge, descriptor: {generic_key: sms, phone: "*"}}
    refund_on: {status: [5xx]}
    limits: [{name: phone, key: phone, rates: [2/1h, 10/1d]}]
  - {name: vip, match: {domain: edge, descriptor: {generic_key: sms, phone: "+49*"}}, limits: [{name: vip, key: phone, rate: 5/1h}]}
  - {name: user, match: {domain: edge, descriptor: {user: "*"}}, limits: [{name: user, key: user, rate: 3/1h}]}
  - {name: busy, match: {domain: edge, descriptor: {busy: "*"}}, limits: [{name: busy, key: global, rate: 50/1h, rate_from: descriptor}]}
  - {name: tokens, match: {domain: edge, descriptor: {tokens: "*"}}, refund_on: {status: [5xx]}, limits: [{name: tokens, key: "descriptor:tokens", rate: 1000/1h}]}
  - {name: tried, match: {domain: edge, descriptor: {tried: "*"}}, mode: shadow, limits: [{name: tried, key: "descriptor:tried", rate: 1/1h}]}
`

// An envoy is a client of the rate limit service, as Envoy is one.
type envoy struct {
	*testing.T
	*Handler
	connection *grpc.ClientConn
	server     *EnvoyServer
}

// askAsEnvoy starts a service and returns its client. decide are further fields of listen.decide.
func askAsEnvoy(t *testing.T, decide string) *envoy {
	t.Helper()
	path := filepath.Join(t.TempDir(), "weir.yaml")
	text := "listen: {http: none, decide: {grpc: \"127.0.0.1:8081\", within: 1m" + decide + "}}\n" + envoyRoutes
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := config.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	r := prometheus.NewRegistry()
	p, err := proxy.New(t.Context(), proxy.Options{Config: c, Store: memory(), Registry: r, Log: zerolog.Nop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	h := New(p, *c.Listen.Decide, r)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := h.NewEnvoyServer(nil, zerolog.Nop())
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	t.Cleanup(func() {
		s.Drain(context.Background())
		if err := <-served; err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	to, err := grpc.NewClient(l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { to.Close() })
	return &envoy{t, h, to, s}
}

func TestEnvoy_TellsWhyARequestIsRefused(t *testing.T) {
	e := askAsEnvoy(t, "")
	sms := descriptor("generic_key=sms", "phone=+8613800138000")
	first := e.wants(codeOK, sms)
	if s := first.statuses[0]; s.code != codeOK || s.limit != "phone 2/3" || s.left != 1 || first.upstream["X-Phone"] != "+8613800138000" || !strings.Contains(first.toClient["Ratelimit"], "phone-1h") {
		t.Errorf("first answer %+v", first)
	}
	e.wants(codeOK, sms)
	last := e.wants(codeOverLimit, sms)
	if s := last.statuses[0]; s.code != codeOverLimit || s.limit != "phone 2/3" || s.left != 0 {
		t.Errorf("status %+v", s)
	}
	if last.toClient["Retry-After"] == "" || last.toClient["Content-Type"] != "application/problem+json" || !strings.Contains(last.body, `"status":429`) || !strings.Contains(last.metadata, "refused") {
		t.Errorf("refusal %+v", last)
	}
	e.wants(codeOK, descriptor("generic_key=sms", "phone=+8613900139000"))
}

func TestEnvoy_TheMostSpecificRouteDecides(t *testing.T) {
	e := askAsEnvoy(t, "")
	for range 5 {
		e.wants(codeOK, descriptor("generic_key=sms", "phone=+4915112345678"))
	}
	e.wants(codeOverLimit, descriptor("phone=+4915112345678", "generic_key=sms"))
}

// A refused call takes nothing under its other descriptors.
func TestEnvoy_AllDescriptorsOfACallOrNone(t *testing.T) {
	e := askAsEnvoy(t, "")
	sms := descriptor("generic_key=sms", "phone=+8613800138000")
	e.wants(codeOK, sms, descriptor("user=ann"))
	e.wants(codeOK, sms)
	for range 5 {
		s := e.wants(codeOverLimit, descriptor("user=ann"), sms)
		if s.statuses[0].code != codeOK || s.statuses[1].code != codeOverLimit || !strings.Contains(s.body, "phone") {
			t.Errorf("statuses %+v, body %s", s.statuses, s.body)
		}
	}
	if s := e.wants(codeOK, descriptor("user=ann")); s.statuses[0].left != 1 {
		t.Errorf("%d left of 3 after two requests, want 1", s.statuses[0].left)
	}
	// The same descriptor twice costs two.
	e.wants(codeOverLimit, descriptor("user=eve"), descriptor("user=eve"), hits(3, descriptor("user=ann")))
	if s := e.wants(codeOK, descriptor("user=eve"), descriptor("user=eve")); s.statuses[1].left != 1 {
		t.Errorf("%d left of 3 after two at once, want 1", s.statuses[1].left)
	}
}

func TestEnvoy_WhatNoRouteMatchesIsAllowed(t *testing.T) {
	e := askAsEnvoy(t, "")
	for range 3 {
		s := e.wants(codeOK, descriptor("generic_key=sms"), descriptor("unknown=x", "user=ann"))
		if len(s.statuses) != 2 || s.statuses[0].code != codeOK || s.statuses[1].limit != "" {
			t.Errorf("statuses %+v", s.statuses)
		}
	}
}

func TestEnvoy_HitsAreTheCost(t *testing.T) {
	e := askAsEnvoy(t, "")
	if s := e.wants(codeOK, hits(2, descriptor("user=ann"))); s.statuses[0].left != 1 {
		t.Errorf("%d left, want 1", s.statuses[0].left)
	}
	e.wants(codeOverLimit, hits(2, descriptor("user=ann")))
	e.wants(codeOverLimit, hits(4, descriptor("user=bob"))) // more than there ever are
	if s := e.wants(codeOK, hits(3, descriptor("user=bob"))); s.statuses[0].left != 0 {
		t.Errorf("%d left, want 0", s.statuses[0].left)
	}
}

// Hits of 0 ask whether one would be allowed, as often as one likes.
func TestEnvoy_HitsOfZeroTakeNothing(t *testing.T) {
	e := askAsEnvoy(t, "")
	check, sms := hits(0, descriptor("user=ann")), descriptor("generic_key=sms", "phone=+8613800138000")
	for range 5 {
		if s := e.wants(codeOK, check); s.statuses[0].left != 3 || s.statuses[0].limit != "user 3/3" || s.upstream[handleField] != "" {
			t.Errorf("answer %+v, want 3 left", s)
		}
		if s := e.wants(codeOK, hits(0, sms)); s.statuses[0].left != 2 || s.upstream["X-Phone"] == "" || s.upstream[handleField] != "" {
			t.Errorf("answer %+v, want 2 left, the number for the upstream, and no handle", s)
		}
	}
	e.wants(codeOK, hits(3, descriptor("user=ann")))
	for range 2 {
		s := e.wants(codeOverLimit, sms, check)
		if s.statuses[0].code != codeOK || s.statuses[1].code != codeOverLimit || s.toClient["Retry-After"] == "" {
			t.Errorf("answer %+v, want the second refused", s)
		}
	}
	if s := e.wants(codeOK, sms, hits(0, descriptor("user=bob"))); s.statuses[0].left != 1 || s.upstream[handleField] == "" {
		t.Errorf("answer %+v, want 1 left of 2: a refused check takes nothing of others", s)
	}
	e.wants(codeOK, sms)
	if s := e.wants(codeOverLimit, sms, hits(0, descriptor("user=bob"))); s.statuses[0].code != codeOverLimit || s.statuses[1].code != codeOK {
		t.Errorf("statuses %+v, want the first refused", s.statuses)
	}
}

func TestEnvoy_ShadowModeRefusesNothing(t *testing.T) {
	e := askAsEnvoy(t, "")
	if s := e.wants(codeOK, descriptor("tried=x")); strings.Contains(s.metadata, "shadow") {
		t.Errorf("metadata %q of the first", s.metadata)
	}
	if s := e.wants(codeOK, descriptor("tried=x")); !strings.Contains(s.metadata, "shadow") {
		t.Errorf("metadata %q of the second", s.metadata)
	}
}

// The stream-done action of Envoy sends the handle and the status back: a failure returns the permit, once.
func TestEnvoy_NegativeHitsWithAHandleRefund(t *testing.T) {
	e := askAsEnvoy(t, ", secret: a secret of twenty letters")
	sms := descriptor("generic_key=sms", "phone=+8613800138000")
	e.wants(codeOK, sms)
	handle := e.wants(codeOK, sms).upstream[handleField]
	if handle == "" {
		t.Fatal("there is no handle")
	}
	e.wants(codeOverLimit, sms)
	for result, outcome := range map[string][]byte{
		"invalid": negative(descriptor("generic_key=sms", "phone=+8613800138000")),
		"forged":  negative(descriptor("weir_handle=A"+handle, "status=503")),
	} {
		e.wants(codeOK, outcome)
		if n := testutil.ToFloat64(e.outcomes.WithLabelValues(result)); n != 1 {
			t.Errorf("%v outcomes %s, want 1", n, result)
		}
		e.wants(codeOverLimit, sms)
	}
	e.wants(codeOK, negative(descriptor("weir_handle="+handle, "status=503")))
	e.wants(codeOK, negative(descriptor("weir_handle="+handle, "status=503")))
	if n := testutil.ToFloat64(e.outcomes.WithLabelValues("repeated")); n != 1 {
		t.Errorf("%v outcomes repeated, want 1", n)
	}
	e.wants(codeOK, sms)
	e.wants(codeOverLimit, sms)
}

// Without a status, negative hits refund whatever the route says; a report over HTTP is the same report.
func TestEnvoy_NegativeHitsWithoutAStatusRefund(t *testing.T) {
	e := askAsEnvoy(t, "")
	kept := e.wants(codeOK, descriptor("user=ann"), descriptor("generic_key=sms", "phone=+8613800138000")).upstream[handleField]
	back := e.wants(codeOK, descriptor("user=ann"), descriptor("generic_key=sms", "phone=+8613800138000")).upstream[handleField]
	sms := descriptor("generic_key=sms", "phone=+8613800138000")
	e.wants(codeOverLimit, sms)
	e.wants(codeOK, descriptor("weir_handle="+kept)) // says nothing
	e.wants(codeOK, descriptor("weir_handle="+kept, "status=ok"))
	if n := testutil.ToFloat64(e.outcomes.WithLabelValues("invalid")); n != 2 {
		t.Errorf("%v invalid outcomes, want 2", n)
	}
	e.wants(codeOverLimit, sms)
	e.wants(codeOK, hits(7, negative(descriptor("weir_handle="+back))))
	e.wants(codeOK, sms)
	e.wants(codeOverLimit, sms)
	for _, want := range []error{nil, proxy.ErrSettled} {
		if err := e.settle(t.Context(), report{Handle: kept, Status: 503}); !errors.Is(err, want) {
			t.Errorf("reported: %v, want %v", err, want)
		}
	}
	e.wants(codeOK, sms)
}

// A request that has cost something else than it took is settled by its handle: once, and never for more than it took.
func TestEnvoy_HitsWithAHandleSettle(t *testing.T) {
	e := askAsEnvoy(t, "")
	for _, test := range []struct {
		name    string
		outcome func(handle []byte) []byte
		left    uint64 // of 1000 after a request that took 100
	}{
		{"less", func(h []byte) []byte { return hits(40, h) }, 960},
		{"nothing", func(h []byte) []byte { return hits(0, h) }, 1000},
		{"the same", func(h []byte) []byte { return hits(100, h) }, 900},
		{"more", func(h []byte) []byte { return hits(250, h) }, 750},
		{"more than there is", func(h []byte) []byte { return hits(1<<40, h) }, 0},
		{"some back", func(h []byte) []byte { return hits(30, negative(h)) }, 930},
		{"more back than was taken", func(h []byte) []byte { return hits(500, negative(h)) }, 1000},
		{"all back", negative, 1000},
		{"no number", func(h []byte) []byte { return h }, 900},
	} {
		asked := descriptor("tokens=" + test.name)
		outcome := test.outcome(descriptor("weir_handle=" + e.wants(codeOK, hits(100, asked)).upstream[handleField]))
		for range 3 {
			e.wants(codeOK, outcome)
			if s, _ := e.call(t.Context(), hits(0, asked)); s.statuses[0].left != test.left {
				t.Errorf("%s: %d left, want %d", test.name, s.statuses[0].left, test.left)
			}
		}
	}
	asked := descriptor("tokens=both") // twice in one call: their one count gets the number once
	both := hits(100, asked)
	e.wants(codeOK, hits(150, descriptor("weir_handle="+e.wants(codeOK, both, both).upstream[handleField])))
	if s, _ := e.call(t.Context(), hits(0, asked)); s.statuses[0].left != 850 {
		t.Errorf("%d left after 150 for two of 100, want 850", s.statuses[0].left)
	}
	if n := testutil.ToFloat64(e.outcomes.WithLabelValues("settled")); n != 9 {
		t.Errorf("%v outcomes settled, want 9", n)
	}
}

func TestEnvoy_OnlyTrustedPeersAsk(t *testing.T) {
	e := askAsEnvoy(t, ", token: a token of twenty letters")
	if _, err := e.call(t.Context(), descriptor("user=ann")); status.Code(err) != codes.PermissionDenied {
		t.Errorf("without a token: %v", err)
	}
	wrong := metadata.AppendToOutgoingContext(t.Context(), tokenField, "another token of letters")
	if _, err := e.call(wrong, descriptor("user=ann")); status.Code(err) != codes.PermissionDenied {
		t.Errorf("with a wrong token: %v", err)
	}
	right := metadata.AppendToOutgoingContext(t.Context(), tokenField, "a token of twenty letters")
	if s, err := e.call(right, descriptor("user=ann")); err != nil || s.code != codeOK {
		t.Errorf("with the token: %+v %v", s, err)
	}
}

func TestEnvoy_RefusesWhatIsNoCall(t *testing.T) {
	e := askAsEnvoy(t, "")
	if _, err := e.call(t.Context()); status.Code(err) != codes.InvalidArgument {
		t.Errorf("without descriptors: %v", err)
	}
	if _, err := e.call(t.Context(), []byte{0x0a, 0x7f}); err == nil {
		t.Error("a message that is cut is accepted")
	}
}

func TestEnvoy_ManyAtOnceGetWhatThereIs(t *testing.T) {
	e := askAsEnvoy(t, "")
	var allowed atomic.Int64
	var all sync.WaitGroup
	for i := range 200 {
		all.Go(func() {
			s, err := e.call(t.Context(), descriptor("busy=x"), descriptor(fmt.Sprintf("user=%d", i)))
			if err != nil {
				t.Error(err)
			}
			if s.code == codeOK {
				allowed.Add(1)
			}
		})
	}
	all.Wait()
	if allowed.Load() != 50 {
		t.Errorf("%d of 200 allowed, want 50", allowed.Load())
	}
}

// gRPC begins a call before it reads what follows. The call waits until all is read and acted upon that had come by then.
func TestFollowedConn_CallsCatchUp(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	theirs, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer theirs.Close()
	ours, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer ours.Close()
	c := followedConn{Conn: ours, socket: socket.New(ours)}
	c.catchUp(t.Context(), time.Now()) // nothing has come
	if _, err := theirs.Write([]byte("0123456789")); err != nil {
		t.Fatal(err)
	}
	await.Until(t, "all has come", func() bool { return c.socket.Unread() == 10 })
	caughtUp := make(chan bool)
	ctx, giveUp := context.WithCancel(t.Context())
	for _, ctx := range []context.Context{t.Context(), ctx} {
		go func() { c.catchUp(ctx, time.Now()); caughtUp <- ctx.Err() == nil }()
	}
	waits := func() bool { c.mu.Lock(); defer c.mu.Unlock(); return c.again != nil }
	for _, want := range []string{"0123", "4567", "89"} { // the last is still to be acted upon
		await.Until(t, "the calls wait", waits)
		p := make([]byte, 4)
		if n, err := c.Read(p); string(p[:n]) != want || err != nil {
			t.Fatalf("read %q, %v; want %q", p[:n], err, want)
		}
	}
	await.Until(t, "the calls wait", waits)
	if giveUp(); await.Value(t, caughtUp, "the end of the call that was given up") {
		t.Error("a call goes on before all is read")
	}
	ended := make(chan error)
	go func() { _, err := c.Read(make([]byte, 4)); ended <- err }()
	if !await.Value(t, caughtUp, "the end of the wait") {
		t.Error("the call has been given up")
	}
	theirs.Close()
	if err := await.Value(t, ended, "the end of the connection"); !errors.Is(err, io.EOF) {
		t.Errorf("at the end: %v", err)
	}
}

// A peer leaves while it is still served, as load balancers do that ask /readyz.
func TestEnvoy_AnswersHealthChecks(t *testing.T) {
	e := askAsEnvoy(t, "")
	for _, want := range []grpc_health_v1.HealthCheckResponse_ServingStatus{grpc_health_v1.HealthCheckResponse_SERVING, grpc_health_v1.HealthCheckResponse_NOT_SERVING} {
		for _, service := range []string{"", envoyService} {
			r, err := grpc_health_v1.NewHealthClient(e.connection).Check(t.Context(), &grpc_health_v1.HealthCheckRequest{Service: service})
			if err != nil || r.Status != want {
				t.Errorf("health of %q: %v %v; want %v", service, r, err, want)
			}
		}
		e.server.AnnounceClose()
	}
}

// A peer that watches the health learns that the server drains, and does not hold that up.
func TestEnvoy_WatchEndsWithTheDrain(t *testing.T) {
	e := askAsEnvoy(t, "")
	watch, err := grpc_health_v1.NewHealthClient(e.connection).Watch(t.Context(), &grpc_health_v1.HealthCheckRequest{})
	if err != nil {
		t.Fatal(err)
	}
	hears := func(want grpc_health_v1.HealthCheckResponse_ServingStatus) {
		if r, err := watch.Recv(); err != nil || r.Status != want {
			t.Fatalf("health: %v %v; want %v", r, err, want)
		}
	}
	hears(grpc_health_v1.HealthCheckResponse_SERVING)
	e.server.AnnounceClose()
	hears(grpc_health_v1.HealthCheckResponse_NOT_SERVING)
	within, cancel := context.WithTimeout(t.Context(), await.Limit)
	defer cancel()
	if e.server.Drain(within); within.Err() != nil {
		t.Error("the drain waits for who watches")
	}
	if _, err := watch.Recv(); err == nil {
		t.Error("the watch goes on")
	}
}

// A mistake of ours ends one call. Its peer learns nothing of our code.
func TestEnvoy_PanicEndsTheCallAlone(t *testing.T) {
	var log bytes.Buffer
	call := new(Handler).serveEnvoy(zerolog.New(&log))
	_, err := call(nil, t.Context(), func(any) error { panic("our own mistake") }, nil)
	if status.Code(err) != codes.Internal || strings.Contains(err.Error(), "mistake") {
		t.Errorf("%v; want an error without details", err)
	}
	if !strings.Contains(log.String(), "our own mistake") || !strings.Contains(log.String(), "envoy_test.go") {
		t.Errorf("logged %s", log.String())
	}
}
