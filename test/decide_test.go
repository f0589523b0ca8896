package test

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/weir-proxy/weir/test/await"
	"github.com/weir-proxy/weir/test/filetest"
	"github.com/weir-proxy/weir/test/redistest"
	"github.com/weir-proxy/weir/test/sockettest"
	"github.com/weir-proxy/weir/test/weirtest"
)

const decideYAML = `
listen: {http: none, decide: {http: "127.0.0.1:0", grpc: "127.0.0.1:0", dialect: haproxy, within: 1m}}
admin: {http: "127.0.0.1:0"}
keys: {phone: header:X-Phone, number: "descriptor:number"}
routes:
  - name: web
    match: {path: /sms}
    limits: [{name: phone, key: phone, rate: 2/1h}, {name: tried, key: phone, rate: 1/1h, mode: shadow}]
  - name: mesh
    match: {domain: edge, descriptor: {number: "*"}}
    limits: [{name: phone, key: number, rate: 2/1h}, {name: tried, key: number, rate: 1/1h, mode: shadow}]
`

// bytesCodec passes messages as they are.
type bytesCodec struct{}

func (bytesCodec) Name() string                       { return "proto" }
func (bytesCodec) Marshal(v any) ([]byte, error)      { return v.([]byte), nil }
func (bytesCodec) Unmarshal(data []byte, v any) error { *v.(*[]byte) = data; return nil }

// An envoyClient asks one Weir about descriptors.
type envoyClient struct{ *grpc.ClientConn }

// envoyClient connects to the listener for Envoy.
func (w *weir) envoyClient(by credentials.TransportCredentials, options ...grpc.DialOption) envoyClient {
	w.t.Helper()
	to, err := grpc.NewClient(w.WaitForLog("serving", nil).Text("decide_grpc"), append(options, grpc.WithTransportCredentials(by))...)
	check(w.t, err)
	w.t.Cleanup(func() { to.Close() })
	return envoyClient{to}
}

// asks asks about the descriptor number=N of the domain edge, with a limit of count a day unless that is 0, and
// returns the code of the answer.
func (e envoyClient) asks(ctx context.Context, number string, count uint64) (code uint64, err error) {
	message := func(field protowire.Number, of []byte) []byte {
		return protowire.AppendBytes(protowire.AppendTag(nil, field, protowire.BytesType), of)
	}
	varint := func(field protowire.Number, n uint64) []byte {
		return protowire.AppendVarint(protowire.AppendTag(nil, field, protowire.VarintType), n)
	}
	entry := append(message(1, []byte("number")), message(2, []byte(number))...)
	descriptor := message(1, entry)
	if count > 0 {
		descriptor = append(descriptor, message(2, append(varint(1, count), varint(2, 4)...))...)
	}
	var answer []byte
	if err := e.Invoke(ctx, "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit", append(message(1, []byte("edge")), message(2, descriptor)...), &answer, grpc.ForceCodec(bytesCodec{})); err != nil {
		return 0, err
	}
	_, _, n := protowire.ConsumeTag(answer)
	code, _ = protowire.ConsumeVarint(answer[n:]) // overall_code is the first field
	return code, nil
}

// asksAsEnvoy asks once, and must be answered.
func (w *weir) asksAsEnvoy(number string) (code uint64) {
	w.t.Helper()
	code, err := w.envoyClient(insecure.NewCredentials()).asks(w.t.Context(), number, 0)
	check(w.t, err)
	return code
}

// With client_ca only an Envoy with a certificate of it asks, from wherever.
func TestDecide_EnvoyShowsACertificate(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	writeCertificate(t, dir)
	ours, strangers := newAuthority(t), newAuthority(t)
	write(t, filepath.Join(dir, "peers.pem"), ours.pem)
	ours.issues(t, filepath.Join(dir, "ann.pem"))
	strangers.issues(t, filepath.Join(dir, "eve.pem"))
	write(t, filepath.Join(dir, "weir.yaml"), `
listen: {http: none, decide: {grpc: "127.0.0.1:0", within: 1m, tls: {cert: cert.pem, key: key.pem}, client_ca: peers.pem}}
admin: {http: "127.0.0.1:0"}
routes:
  - {name: mesh, match: {domain: edge, descriptor: {number: "*"}}, limits: [{name: number, key: "descriptor:number", rate: 1/1h}]}
`)
	w := startWith(t, dir)
	with := func(file string) credentials.TransportCredentials {
		c := &tls.Config{InsecureSkipVerify: true}
		if file != "" {
			pair, err := tls.LoadX509KeyPair(filepath.Join(dir, file), filepath.Join(dir, file))
			check(t, err)
			c.Certificates = []tls.Certificate{pair}
		}
		return credentials.NewTLS(c)
	}
	for _, by := range []credentials.TransportCredentials{with(""), with("eve.pem"), insecure.NewCredentials()} {
		if code, err := w.envoyClient(by).asks(t.Context(), "1", 0); err == nil {
			t.Errorf("without a certificate: code %d", code)
		}
	}
	for _, want := range []uint64{1, 2} {
		if code, err := w.envoyClient(with("ann.pem")).asks(t.Context(), "1", 0); code != want || err != nil {
			t.Errorf("with a certificate: code %d, %v; want %d", code, err, want)
		}
	}
}

// Both listeners for other proxies are seen wherever requests are, and which one it was.
func TestDecide_BothListenersAreSeenLikeRequests(t *testing.T) {
	t.Parallel()
	file := weirtest.Write(t, decideYAML)
	w := startWith(t, filepath.Dir(file), "-c", file)
	asks := "http://" + w.WaitForLog("serving", nil).Text("decide") + "/decide"
	for i, want := range []int{200, 200, 429} {
		status, _ := do(t, http.MethodGet, asks, http.Header{
			"X-Original-Method": {"POST"}, "X-Original-Uri": {"/sms"}, "X-Original-Host": {"localhost"}, "X-Forwarded-For": {"192.0.2.1"}, "X-Phone": {"web"},
		})
		if status != want {
			t.Errorf("%d over HTTP: %d; want %d", i, status, want)
		}
	}
	for i, want := range []uint64{1, 1, 2} {
		if code := w.asksAsEnvoy("mesh"); code != want {
			t.Errorf("%d over gRPC: code %d; want %d", i, code, want)
		}
	}
	for route, listener := range map[string]string{"web": "decide/haproxy", "mesh": "decide/envoy"} {
		w.showsDecisions(route, listener)
	}
}

// showsDecisions wants the decisions of a route on a listener wherever an operator may look: two are allowed, one of
// which a limit in shadow mode would have refused, and one is refused.
func (w *weir) showsDecisions(route, listener string) {
	t := w.t
	t.Helper()
	var list struct {
		Decisions []struct{ ID, Outcome, Listener string }
	}
	w.getAdmin("/api/v1/decisions?route="+route, &list)
	// Of requests that nothing would have refused there is only a sample.
	if n := len(list.Decisions); n < 2 || list.Decisions[0].Outcome != "refused" || list.Decisions[0].Listener != listener {
		t.Errorf("decisions are %+v", list.Decisions)
	}
	var id string
	lines := 0
	for _, line := range w.log.Lines() {
		if line.Text("message") == "request" && line.Text("route") == route {
			lines++
			id = line.Text("request_id")
			if line.Text("listener") != listener {
				t.Errorf("log has the listener %s", line.Text("listener"))
			}
		}
	}
	if lines != 3 {
		t.Errorf("log has %d lines; want 3", lines)
	}
	w.explains(id, "429, refused", listener, "phone-1h")
	found := false
	for _, l := range w.topAsJSON().Top.Limits {
		found = found || l.Route == route && l.Limit == "phone" && l.Refused.Total == 1
	}
	if !found {
		t.Errorf("top does not show the refusal by %s.phone", route)
	}
	dialect := strings.TrimPrefix(listener, "decide/")
	for series, want := range map[string]float64{
		fmt.Sprintf("weir_decide_requests_total{dialect=%q,result=%q}", dialect, "allowed"):                2,
		fmt.Sprintf("weir_decide_requests_total{dialect=%q,result=%q}", dialect, "refused"):                1,
		fmt.Sprintf("weir_decisions_total{limit=%q,result=%q,route=%q}", "phone", "refused", route):        1,
		fmt.Sprintf("weir_decisions_total{limit=%q,result=%q,route=%q}", "tried", "shadow_refused", route): 1,
	} {
		if got := w.metric(series); got != want {
			t.Errorf("%s is %v; want %v", series, got, want)
		}
	}
	w.simulates(route)
}

// simulates wants a replay of the node's log to decide about a route as the node has.
func (w *weir) simulates(route string) {
	t := w.t
	t.Helper()
	log := filetest.Files(t, "access.log", w.log.String())
	code, stdout, stderr := command(t, w.Dir, "simulate", "--json", "-c", w.File, log)
	var got struct {
		Result struct {
			Routes []struct {
				Name            string
				Passed, Refused int
			}
		}
	}
	if err := json.Unmarshal([]byte(stdout), &got); err != nil || code != 0 {
		t.Fatalf("simulate exits %d: %v %s%s", code, err, stdout, stderr)
	}
	for _, r := range got.Result.Routes {
		if r.Name == route && r.Passed == 2 && r.Refused == 1 {
			return
		}
	}
	t.Errorf("simulate says %s; want 2 passed and 1 refused of %s", stdout, route)
}

// The limits that descriptors bring are counted together by all nodes, and outlive them.
func TestDecide_LimitsOfDescriptorsOverTwoNodes(t *testing.T) {
	t.Parallel()
	config := redisYAML(redistest.Start(t).Addr) + `
listen: {http: none, decide: {grpc: "127.0.0.1:0", within: 1m}}
admin: {http: "127.0.0.1:0"}
routes:
  - name: mesh
    match: {domain: edge, descriptor: {number: "*"}}
    limits: [{name: number, key: "descriptor:number", rate: 1/1h, rate_from: descriptor}]
`
	begin := func() envoyClient {
		file := weirtest.Write(t, config)
		return startWith(t, filepath.Dir(file), "-c", file).envoyClient(insecure.NewCredentials())
	}
	nodes := []envoyClient{begin(), begin()}
	var allowed, failed atomic.Int64
	var all sync.WaitGroup
	for i := range 200 {
		all.Go(func() {
			switch code, err := nodes[i%2].asks(t.Context(), "a", 50); {
			case err != nil:
				failed.Add(1)
			case code == 1:
				allowed.Add(1)
			}
		})
	}
	all.Wait()
	if allowed.Load() != 50 || failed.Load() != 0 {
		t.Errorf("%d of 200 allowed, and %d failed; want 50 and none", allowed.Load(), failed.Load())
	}
	again := begin()
	for _, c := range []struct{ count, want uint64 }{{50, 2}, {51, 1}, {51, 2}, {60, 1}} {
		if code, err := again.asks(t.Context(), "a", c.count); code != c.want || err != nil {
			t.Errorf("another node, %d a day: code %d, %v; want %d", c.count, code, err, c.want)
		}
	}
}

// trustYAML is a configuration of listen.decide with more fields.
func trustYAML(more string) string {
	return `listen: {http: none, decide: {http: "127.0.0.1:0", dialect: haproxy, within: 30s, ` + more + `}}
admin: {http: "127.0.0.1:0"}
keys: {phone: header:X-Phone}
routes: [{name: sms, match: {path: /sms}, limits: [{name: phone, key: phone, rate: 1/1h}]}]
`
}

// asksDecision asks about a request, and returns the status and the body of the answer.
func asksDecision(t *testing.T, client *http.Client, url, token string) (status int, body string, err error) {
	t.Helper()
	r, err := http.NewRequest("GET", url+"/decide", nil)
	check(t, err)
	for name, value := range map[string]string{
		"X-Original-Method": "POST", "X-Original-URI": "/sms", "X-Original-Host": "api.example.com", "X-Forwarded-For": "192.0.2.1",
		"X-Phone": "1", "X-Weir-Token": token,
	} {
		if value != "" {
			r.Header.Set(name, value)
		}
	}
	answer, err := client.Do(r)
	if err != nil {
		return 0, "", err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	return answer.StatusCode, string(text), err
}

// Over TLS with client_ca and token, only a peer that has a certificate of that authority and the token is
// answered; nobody else uses up a limit.
func TestDecide_AsksPeersForCertificateAndToken(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	writeCertificate(t, dir)
	peers, strangers := newAuthority(t), newAuthority(t)
	write(t, filepath.Join(dir, "peers.pem"), peers.pem)
	peers.issues(t, filepath.Join(dir, "peer.pem"))
	strangers.issues(t, filepath.Join(dir, "eve.pem"))
	write(t, filepath.Join(dir, "weir.yaml"), trustYAML("tls: {cert: cert.pem, key: key.pem}, client_ca: peers.pem, token: 0123456789abcdef"))
	address := startWith(t, dir).WaitForLog("serving", nil).Text("decide")
	for _, c := range []struct {
		cert, token string
		status      int // 0 for none
	}{
		{"", "0123456789abcdef", 0}, {"eve.pem", "0123456789abcdef", 0}, {"peer.pem", "", 403}, {"peer.pem", "0123456789abcdeF", 403},
		{"peer.pem", "0123456789abcdef", 200}, {"peer.pem", "0123456789abcdef", 429},
	} {
		secure := &tls.Config{InsecureSkipVerify: true}
		if c.cert != "" {
			own := filetest.Read(t, filepath.Join(dir, c.cert))
			pair, err := tls.X509KeyPair(own, own)
			check(t, err)
			secure.Certificates = []tls.Certificate{pair}
		}
		client := &http.Client{Transport: &http.Transport{TLSClientConfig: secure, DisableKeepAlives: true}, Timeout: await.Limit}
		status, body, err := asksDecision(t, client, "https://"+address, c.token)
		if status != c.status || (err != nil) != (c.status == 0) {
			t.Errorf("certificate %q, token %q: %d %s (%v); want %d", c.cert, c.token, status, body, err, c.status)
		}
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: await.Limit}
	if status, body, err := asksDecision(t, client, "http://"+address, "0123456789abcdef"); err == nil && (status == 200 || status == 429) {
		t.Errorf("without TLS: %d %s", status, body)
	}
}

// asksFor is a question of HAProxy about a request for a phone.
func asksFor(phone string) string {
	return strings.ReplaceAll("GET /decide HTTP/1.1|Host: weir|X-Original-Method: POST|X-Original-Uri: /sms|X-Original-Host: a|"+
		"X-Forwarded-For: 192.0.2.1|X-Phone: "+phone+"||", "|", "\r\n")
}

// A sentFrames is a connection over HTTP/2 that knows what was sent.
type sentFrames struct {
	net.Conn
	mu    sync.Mutex
	bytes []byte
}

func (s *sentFrames) Write(b []byte) (int, error) {
	n, err := s.Conn.Write(b)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.bytes = append(s.bytes, b[:n]...)
	return n, err
}

// resets returns how many RST_STREAM were sent.
func (s *sentFrames) resets() (count int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	frames := http2.NewFramer(nil, bytes.NewReader(s.bytes[len(http2.ClientPreface):]))
	for {
		switch f, err := frames.ReadFrame(); {
		case err != nil:
			return count
		case f.Header().Type == http2.FrameRSTStream:
			count++
		}
	}
}

// What a Weir that stood still finds is not counted if those who asked have given up: questions on new
// connections, on connections that were open, and calls of Envoy.
func TestDecide_NobodyWaitsForAWeirThatStoodStill(t *testing.T) {
	t.Parallel()
	const n = 30
	file := weirtest.Write(t, decideYAML)
	w := startWith(t, filepath.Dir(file), "-c", file)
	addr := w.WaitForLog("serving", nil).Text("decide")
	var open []*sockettest.Client
	for i := range n {
		c := sockettest.Dial(t, addr, asksFor(fmt.Sprint("open ", i)))
		c.WantStatus(http.StatusOK)
		open = append(open, c)
	}
	sent := new(sentFrames)
	envoy := w.envoyClient(insecure.NewCredentials(), grpc.WithContextDialer(func(_ context.Context, addr string) (_ net.Conn, err error) {
		sent.Conn, err = net.Dial("tcp", addr)
		return sent, err
	}))
	if _, err := envoy.asks(t.Context(), "open", 1); err != nil {
		t.Fatal(err)
	}

	w.Signal(syscall.SIGSTOP)
	for _, c := range open {
		c.Send(asksFor("gone"))
		c.Conn.Close()
		sockettest.Dial(t, addr, asksFor("gone")).Conn.Close()
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	calls := make(chan error, n)
	for range n {
		go func() { _, err := envoy.asks(ctx, "gone", 1); calls <- err }()
	}
	for range n {
		if err := await.Value(t, calls, "the end of a call"); err == nil {
			t.Fatal("a Weir that stands still has answered")
		}
	}
	await.Until(t, "all calls are given up", func() bool { return sent.resets() == n })
	w.Signal(syscall.SIGCONT)

	seen := func(result string) float64 {
		return w.metric(fmt.Sprintf("weir_decide_requests_total{dialect=\"haproxy\",result=%q}", result))
	}
	await.Until(t, "all questions are seen", func() bool { return seen("allowed")+seen("refused")+seen("gone") == 3*n })
	if gone := seen("gone"); gone != 2*n {
		t.Errorf("nobody waits for %v questions; want %d", gone, 2*n)
	}
	for i, want := range []uint64{1, 1, 2} {
		status := []int{200, 200, 429}[i]
		if got, _ := sockettest.Dial(t, addr, asksFor("gone")).ReadResponse(http.MethodGet); got.StatusCode != status {
			t.Errorf("%d over HTTP: %d; want %d", i, got.StatusCode, status)
		}
		if code := w.asksAsEnvoy("gone"); code != want {
			t.Errorf("%d over gRPC: code %d; want %d", i, code, want)
		}
	}
}

// Nothing is counted of a question whose asker leaves while Redis is asked.
func TestDecide_NobodyWaitsForRedis(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	file := weirtest.Write(t, fmt.Sprintf("store: redis\nredis: {addrs: [%q], timeout: 1m}\n", server.Addr)+decideYAML)
	w := startWith(t, filepath.Dir(file), "-c", file)
	addr := w.WaitForLog("serving", nil).Text("decide")
	server.Signal(syscall.SIGSTOP)
	t.Cleanup(func() { server.Signal(syscall.SIGCONT) })
	for range 2 {
		sockettest.Dial(t, addr, asksFor("gone")).Conn.Close()
	}
	server.Signal(syscall.SIGCONT)
	for i, want := range []int{200, 200, 429} {
		await.Until(t, "both questions are seen", func() bool { return w.metric(`weir_decide_requests_total{dialect="haproxy",result="gone"}`) == 2 })
		if got, _ := sockettest.Dial(t, addr, asksFor("gone")).ReadResponse(http.MethodGet); got.StatusCode != want {
			t.Errorf("%d: %d; want %d", i, got.StatusCode, want)
		}
	}
}
