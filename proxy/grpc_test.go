package proxy

import (
	"context"
	"errors"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	grpccode "google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/test/filetest"
	"github.com/weir-proxy/weir/test/sockettest"
)

// textCodec passes texts through as messages.
type textCodec struct{}

func (textCodec) Name() string                       { return "proto" }
func (textCodec) Marshal(v any) ([]byte, error)      { return []byte(v.(string)), nil }
func (textCodec) Unmarshal(data []byte, v any) error { *v.(*string) = string(data); return nil }

// grpcFile has a route for each way in which Weir answers a call itself. UP is an upstream that speaks gRPC, SLOW one
// that never answers, and GONE an address at which nobody listens.
const grpcFile = `
listen: {h2c: true}
jwt: {secret: "0123456789abcdef0123456789abcdef"}
lists: {stolen: {key: "header:X-Phone", values: ["666"], action: deny}}
upstreams:
  up: {targets: ['UP'], protocol: h2c}
  slow: {SLOW, timeouts: {response: 50ms}}
  gone: {targets: ['GONE'], protocol: h2c}
routes:
  - {name: open, match: {path: /s/Open}, upstream: up}
  - {name: limited, match: {path: /s/Limited}, upstream: up, limits: [{key: client_ip, rate: 1/1h}], reject: {detail: "Später: {retry_after} s, 100 %"}}
  - {name: plain, match: {path: /s/Plain}, upstream: up, limits: [{key: client_ip, rate: 1/1h}], reject: {status: 503, body: "Come back later.", headers: {X-Why: "{limit}"}}}
  - {name: key, match: {path: /s/Key}, upstream: up, limits: [{key: "header:X-Phone", rate: 9/1h}]}
  - {name: token, match: {path: /s/Token}, upstream: up, limits: [{key: "jwt:sub", rate: 9/1h}]}
  - {name: listed, match: {path: /s/Listed}, upstream: up, lists: [stolen]}
  - {name: step, match: {path: /s/Step}, upstream: up, limits: [{key: client_ip, rate: 1/1h, step_up: {challenge: captcha, rate: 1/1h}}]}
  - {name: body, match: {path: /s/Body}, upstream: up, body: {max: 1KiB}}
  - {name: get, match: {path: /s/Get, methods: [GET]}, upstream: up}
  - {name: slow, match: {path: /s/Slow}, upstream: slow}
  - {name: gone, match: {path: /s/Gone}, upstream: gone}
  - {name: store, match: {path: /s/Store}, upstream: up, limits: [{key: client_ip, rate: 9/1h, on_store_failure: deny}]}
  - {name: fixed, match: {path: /s/Fixed}, respond: {status: 503, body: "At noon.", headers: {Retry-After: "90"}}}
  - {name: own, match: {path: /s/Own}, respond: {status: 418, headers: {Grpc-Status: "9"}}}
`

// A grpcClient is a client of a proxy.
type grpcClient struct {
	*testing.T
	*grpc.ClientConn
}

// startGRPC starts a proxy by grpcFile and returns it with a client.
func startGRPC(t *testing.T) (*testServer, grpcClient) {
	t.Helper()
	up := grpc.NewServer(grpc.ForceServerCodec(textCodec{}), grpc.UnknownServiceHandler(func(_ any, s grpc.ServerStream) error {
		var text string
		if err := s.RecvMsg(&text); err != nil {
			return err
		}
		return s.SendMsg("re: " + text[:min(len(text), 9)])
	}))
	listener := sockettest.Listen(t)
	go func() { _ = up.Serve(listener) }()
	t.Cleanup(up.Stop)
	slow := startVersion(t, "h2c", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	f := startServer(t, strings.NewReplacer("UP", "http://"+listener.Addr().String(), "{SLOW", slow[:len(slow)-1], "GONE", closedURL(t)).Replace(grpcFile))
	client, err := grpc.NewClient("passthrough:///"+f.addr, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultCallOptions(grpc.ForceCodec(textCodec{})))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	return f, grpcClient{t, client}
}

// call makes a call and returns its answer, its status, and all metadata.
func (c grpcClient) call(method, text string, fields ...string) (answer string, s *status.Status, md metadata.MD) {
	c.Helper()
	ctx, cancel := context.WithTimeout(metadata.AppendToOutgoingContext(c.Context(), fields...), 10*time.Second)
	defer cancel()
	var header, trailer metadata.MD
	err := c.Invoke(ctx, method, text, &answer, grpc.Header(&header), grpc.Trailer(&trailer))
	return answer, status.Convert(err), metadata.Join(header, trailer)
}

// A client of gRPC learns why Weir refuses its call, and when to try again.
func TestGRPC_RefusalsHaveAStatus(t *testing.T) {
	f, client := startGRPC(t)
	for range 2 { // the second is refused
		client.call("/s/Limited", "x")
		client.call("/s/Plain", "x")
		client.call("/s/Step", "x")
	}
	if answer, s, _ := client.call("/s/Open", "hello"); answer != "re: hello" || s.Code() != grpccode.OK {
		t.Fatalf("%q, %v; want that a call passes", answer, s)
	}
	for _, c := range []struct {
		method, text, field string
		code                grpccode.Code
		message             string
		retry               bool
	}{
		{"Limited", "", "", grpccode.ResourceExhausted, "Später: ", true},
		{"Plain", "", "", grpccode.Unavailable, "Come back later.", true},
		{"Key", "", "", grpccode.InvalidArgument, "header:X-Phone", false},
		{"Token", "", "", grpccode.Unauthenticated, "", false},
		{"Listed", "", "666", grpccode.PermissionDenied, "Forbidden", false},
		{"Step", "", "", grpccode.PermissionDenied, "captcha", true},
		{"Body", strings.Repeat("x", 2000), "", grpccode.ResourceExhausted, "", false},
		{"Get", "", "", grpccode.Unimplemented, "Method Not Allowed", false},
		{"None", "", "", grpccode.Unimplemented, "Not Found", false},
		{"Slow", "", "", grpccode.DeadlineExceeded, "Gateway Timeout", false},
		{"Gone", "", "", grpccode.Unavailable, "Bad Gateway", false},
		{"Fixed", "", "", grpccode.Unavailable, "At noon.", true},
		{"Own", "", "", grpccode.FailedPrecondition, "", false},
	} {
		_, s, md := client.call("/s/"+c.method, c.text, "x-phone", c.field)
		if s.Code() != c.code || !strings.Contains(s.Message(), c.message) {
			t.Errorf("%s: %v %q; want %v with %q", c.method, s.Code(), s.Message(), c.code, c.message)
		}
		var retry *errdetails.RetryInfo
		for _, d := range s.Details() {
			retry, _ = d.(*errdetails.RetryInfo)
		}
		after := strings.Join(md.Get("retry-after"), "")
		if (retry != nil) != c.retry || (after != "") != c.retry {
			t.Errorf("%s: retry information %v and retry-after %q; want some: %t", c.method, retry, after, c.retry)
		} else if retry != nil && retry.RetryDelay.AsDuration().String() != (must(time.ParseDuration(after+"s"))).String() {
			t.Errorf("%s: retry information %v and retry-after %q", c.method, retry, after)
		}
		if len(md.Get("x-request-id")) != 1 {
			t.Errorf("%s: the request ids are %q", c.method, md.Get("x-request-id"))
		}
	}
	if _, _, md := client.call("/s/Plain", ""); strings.Join(md.Get("x-why"), "") != "client_ip" {
		t.Errorf("the metadata is %v; want the field of reject", md)
	}
	f.store.fail(errors.Join(limiter.ErrUnavailable, errors.New("no route to host")))
	if _, s, _ := client.call("/s/Store", ""); s.Code() != grpccode.Unavailable {
		t.Errorf("without a store: %v", s)
	}
	statuses := map[any]int{}
	for _, line := range f.lines("request") {
		statuses[line["status"]]++
	}
	if statuses[429.0] != 2 || statuses[504.0] != 1 || statuses[403.0] != 3 {
		t.Errorf("the log has the statuses %v; want those of HTTP", statuses)
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// Over HTTP/1.1, as gRPC-Web, the status is in the header too, and other types get a problem.
func TestGRPC_ContentTypes(t *testing.T) {
	w := newProxy(t, limitYAML("{key: client_ip, rate: 1/1h}"))
	w.sends(200, "POST", "/a", "Content-Type: application/grpc", "x")
	for range 20 { // more than it takes until a refusal is kept
		for sent, want := range map[string]string{
			"application/grpc": "application/grpc", "application/grpc+proto": "application/grpc+proto", "application/grpc;charset=x": "application/grpc",
			"Application/GRPC-Web-Text": "application/grpc-web-text", "application/grpc-web+proto; x": "application/grpc-web+proto",
		} {
			rec := w.send("POST", "/a", "Content-Type: "+sent, "x")
			h := rec.Header()
			if rec.Code != 200 || h.Get("Content-Type") != want || h.Get("Grpc-Status") != "8" || !strings.HasPrefix(h.Get("Grpc-Message"), "Too many requests. Try again in 3") || rec.Body.Len() > 0 || h.Get("Retry-After") == "" {
				t.Fatalf("%s: %d %v %q", sent, rec.Code, h, rec.Body)
			}
		}
		for _, sent := range []string{"application/json", "application/grpcx", "text/application/grpc", "application/grpc, application/grpc", ""} {
			rec := w.send("POST", "/a", "Content-Type: "+sent, "x")
			if h := rec.Header(); rec.Code != 429 || h.Get("Content-Type") != "application/problem+json" || h.Get("Grpc-Status") != "" || rec.Body.Len() == 0 {
				t.Fatalf("%q: %d %v %q", sent, rec.Code, h, rec.Body)
			}
		}
	}
}

// The page on responses says which code each status becomes.
func TestGRPC_CodesAreThoseOfThePage(t *testing.T) {
	page := filetest.Read(t, "docs/responses.md")
	statuses := 0
	for _, m := range regexp.MustCompile("`([A-Z_]+)`\\s+for\\s+(\\d{3}(?:(?:,| and|,? or)?\\s+\\d{3})*)").FindAllSubmatch(page, -1) {
		for _, status := range regexp.MustCompile(`\d+`).FindAllString(string(m[2]), -1) {
			statuses++
			var code grpccode.Code
			n, _ := strconv.Atoi(status) // it has digits only
			if err := code.UnmarshalJSON([]byte(strconv.Quote(string(m[1])))); err != nil || grpcCode(n) != uint64(code) {
				t.Errorf("%s becomes %v; the page says %s (%v)", status, grpcCode(n), m[1], err)
			}
		}
	}
	if statuses < 16 {
		t.Errorf("the page tells of %d statuses", statuses)
	}
}
