package proxy

import (
	"github.com/weir-proxy/weir/test/await"
	"github.com/weir-proxy/weir/test/redistest"
	"net/http"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// function is a line of a stack that names a function of ours, with its package.
var function = regexp.MustCompile(`(?m)^github\.com/weir-proxy/weir/([\w/]+)\.`)

// stackTo is the packages of ours on the stack that comes through the proxy and ends in this
// one, outermost first, each as often as it is entered; nil if there is no such stack. Stacks
// of goroutines that the store itself started, such as its connections', are not looked at.
func stackTo(pkg string) (entered []string) {
	all := make([]byte, 1<<20)
	all = all[:runtime.Stack(all, true)]
	for stack := range strings.SplitSeq(string(all), "\n\n") {
		stack, _, _ = strings.Cut(stack, "\ncreated by ")
		var calls []string // innermost first
		for _, f := range function.FindAllStringSubmatch(stack, -1) {
			calls = append(calls, f[1])
		}
		if len(calls) > 0 && calls[0] == pkg && slices.Contains(calls, "proxy") {
			slices.Reverse(calls)
			return slices.Compact(calls)
		}
	}
	return nil
}

// startWalked starts a proxy that asks Redis about each request, through faults.
func (over transport) startWalked(t *testing.T) (f *testServer, faults *redistest.FaultProxy) {
	t.Helper()
	server := redistest.Start(t)
	faults = redistest.NewFaultProxy(t, server.Addr)
	return over.opened(t, `
keys: {phone: {from: "header:X-Phone", normalize: e164}}
routes: [{name: sms, match: {path: /sms}, upstream: echo, limits: [{name: phone, key: phone, rate: 5/1h}]}]
`, func(o *Options) { o.Store = redisStore(t, faults.Addr) }), faults
}

// A request goes from the client's connection to Redis by entering each package once, and
// the answer returns the same way: whoever follows a key through the code goes one way.
func TestServe_ARequestEntersEachPackageOnce(t *testing.T) {
	enters := func(t *testing.T, faults *redistest.FaultProxy, send func() (status int), want ...string) {
		t.Helper()
		if status := send(); status != 200 { // all that begins with the first request has begun then
			t.Fatalf("status %d", status)
		}
		faults.Hold()
		answered := make(chan int, 1)
		go func() { answered <- send() }()
		var got []string
		await.Until(t, "a request waits for Redis", func() bool { got = stackTo("limiter/redisstore"); return got != nil })
		faults.Release()
		if status := await.Value(t, answered, "an answer"); status != 200 || !slices.Equal(got, want) {
			t.Errorf("a request enters %q and is answered %d; want %q", got, status, want)
		}
	}
	overEachTransport(t, func(t *testing.T, over transport) {
		f, faults := over.startWalked(t)
		enters(t, faults, func() int {
			w := f.dial("POST /sms HTTP/1.1\r\nHost: a\r\nX-Phone: +8613800138000\r\nContent-Length: 0\r\n\r\n")
			answer, _ := w.ReadResponse("POST")
			return answer.StatusCode
		}, "proxy/frontend", "proxy/http1", "proxy", "proxy/limit", "limiter/redisstore")
	})
	t.Run("http2", func(t *testing.T) {
		f, faults := transport(plainTransport).startWalked(t)
		_, client := f.listenTLSClient()
		enters(t, faults, func() int {
			r, _ := http.NewRequest("POST", "https://example.com/sms", nil)
			r.Header.Set("X-Phone", "+8613800138000")
			answer, err := client.Do(r)
			if err != nil {
				t.Error(err)
				return 0
			}
			defer answer.Body.Close()
			return answer.StatusCode
		}, "proxy/frontend", "proxy/http2", "proxy", "proxy/limit", "limiter/redisstore")
	})
}
