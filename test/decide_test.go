package test

import (
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/encoding/protowire"

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

// asksAsEnvoy asks about the descriptor number=N of the domain edge, and returns the code of the answer.
func (w *weir) asksAsEnvoy(number string) (code uint64) {
	w.t.Helper()
	code, err := w.callsAsEnvoy(number, insecure.NewCredentials())
	if err != nil {
		w.t.Fatal(err)
	}
	return code
}

// callsAsEnvoy is asksAsEnvoy with credentials, which may be refused.
func (w *weir) callsAsEnvoy(number string, by credentials.TransportCredentials) (code uint64, err error) {
	w.t.Helper()
	to, err := grpc.NewClient(w.WaitForLog("serving", nil).Text("decide_grpc"), grpc.WithTransportCredentials(by))
	if err != nil {
		return 0, err
	}
	defer to.Close()
	message := func(field protowire.Number, of []byte) []byte {
		return protowire.AppendBytes(protowire.AppendTag(nil, field, protowire.BytesType), of)
	}
	entry := append(message(1, []byte("number")), message(2, []byte(number))...)
	call := append(message(1, []byte("edge")), message(2, message(1, entry))...)
	var answer []byte
	if err := to.Invoke(w.t.Context(), "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit", call, &answer, grpc.ForceCodec(bytesCodec{})); err != nil {
		return 0, err
	}
	_, _, n := protowire.ConsumeTag(answer)
	code, _ = protowire.ConsumeVarint(answer[n:]) // overall_code is the first field
	return code, nil
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
			if err != nil {
				t.Fatal(err)
			}
			c.Certificates = []tls.Certificate{pair}
		}
		return credentials.NewTLS(c)
	}
	for _, by := range []credentials.TransportCredentials{with(""), with("eve.pem"), insecure.NewCredentials()} {
		if code, err := w.callsAsEnvoy("1", by); err == nil {
			t.Errorf("without a certificate: code %d", code)
		}
	}
	for _, want := range []uint64{1, 2} {
		if code, err := w.callsAsEnvoy("1", with("ann.pem")); code != want || err != nil {
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
	log := filepath.Join(t.TempDir(), "access.log")
	if err := os.WriteFile(log, []byte(w.log.String()), 0o600); err != nil {
		t.Fatal(err)
	}
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
