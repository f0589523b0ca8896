package proxy

import (
	"bytes"
	"flag"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"golang.org/x/net/http2"

	"github.com/weir-proxy/weir/test/filetest"
)

// An http2Case is a request over HTTP/2, and how the upstream answers it.
type http2Case struct {
	fields  []string
	body    []string // in frames; none for a request that ends with its head
	trailer []string
	answer  string
}

// own are the values that differ from process to process, and from request to request.
var own = regexp.MustCompile(`weir-[0-9A-Za-z]{8}|[A-Z2-7]{26}|127\.0\.0\.1:\d+`)

// played sends the request of c and returns what the upstream got and what the client got.
func (c *http2Case) played(t *testing.T) (forwarded, answered string) {
	t.Helper()
	up := startRecording(t, c.answer)
	s := startServer(t, forwardYAML(up.url, cleartext, "limits: [{name: n, key: client_ip, rate: 5/1h}]")).speaks()
	end := len(c.body) == 0 && len(c.trailer) == 0
	s.header(http2.HeadersFrameParam{StreamID: 1, BlockFragment: encode(c.fields...), EndHeaders: true, EndStream: end})
	for i, piece := range c.body {
		s.WriteData(1, i == len(c.body)-1 && len(c.trailer) == 0, []byte(piece))
	}
	if len(c.trailer) > 0 {
		s.header(http2.HeadersFrameParam{StreamID: 1, BlockFragment: encode(c.trailer...), EndHeaders: true, EndStream: true})
	}
	var got []string
	body := ""
	s.hears("end", func(f http2.Frame) bool {
		switch f := f.(type) {
		case *http2.MetaHeadersFrame:
			var lines []string
			for _, field := range f.Fields {
				if field.Name != "date" && field.Name != "trailer" { // net/http announces trailers
					lines = append(lines, field.Name+": "+field.Value)
				}
			}
			slices.Sort(lines)
			got = append(got, strings.Join(lines, "\n"))
			return f.StreamEnded()
		case *http2.DataFrame:
			body += string(f.Data())
			return f.StreamEnded()
		case *http2.RSTStreamFrame:
			got = append(got, f.ErrCode.String())
			return true
		case *http2.GoAwayFrame:
			got = append(got, "GOAWAY")
			return true
		}
		return false
	})
	select {
	case forwarded = <-up.seen:
		head, rest, _ := strings.Cut(forwarded, "\r\n\r\n")
		lines := strings.Split(head, "\r\n")
		slices.Sort(lines[1:])
		forwarded = strings.Join(lines, "\n") + "\n" + unchunked(rest)
	default:
	}
	return own.ReplaceAllString(forwarded, "OWN"), own.ReplaceAllString(strings.Join(append(got, body), "\n--\n"), "OWN")
}

// unchunked drops the sizes of chunks, which depend on how a body arrives.
func unchunked(body string) string {
	return regexp.MustCompile(`(?m)^[0-9a-f]+\r\n|\r\n`).ReplaceAllString(body, "")
}

// What is forwarded of requests over HTTP/2, and of their responses, is what net/http's server had forwarded,
// which was the other one until it was removed: testdata/http2.golden, written by -update.
func TestHTTP2_ForwardsAsBefore(t *testing.T) {
	const chunked = "HTTP/1.1 200 OK\r\nTrailer: X-Sum\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nX-Sum: 42\r\n\r\n"
	cases := map[string]http2Case{
		"GET":                  {fields: request("GET", "/x?a=b&c", "user-agent", "me", "accept", "*/*", "x-one", "1", "x-one", "2"), answer: fine},
		"empty query":          {fields: request("GET", "/x?"), answer: fine},
		"cookies":              {fields: request("GET", "/", "cookie", "a=1", "cookie", "b=2"), answer: fine},
		"HEAD":                 {fields: request("HEAD", "/"), answer: "HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n"},
		"OPTIONS":              {fields: request("OPTIONS", "/", "max-forwards", "0"), answer: fine},
		"every OPTIONS":        {fields: request("OPTIONS", "*"), answer: fine},
		"DELETE":               {fields: request("DELETE", "/"), answer: "HTTP/1.1 204 No Content\r\n\r\n"},
		"own fields":           {fields: request("GET", "/", "x-forwarded-for", "1.2.3.4", "x-real-ip", "1.2.3.4", "forwarded", "for=1", "via", "1.0 a", "proxy", "x", "x_forwarded_for", "1"), answer: fine},
		"POST with a length":   {fields: request("POST", "/", "content-length", "5"), body: []string{"he", "llo"}, answer: fine},
		"POST without one":     {fields: request("POST", "/", "content-type", "text/plain"), body: []string{"he", "llo"}, answer: fine},
		"POST without a body":  {fields: request("POST", "/"), answer: fine},
		"empty body":           {fields: request("POST", "/", "content-length", "0"), body: []string{""}, answer: fine},
		"trailer":              {fields: request("POST", "/", "trailer", "x-sum", "te", "trailers"), body: []string{"hello"}, trailer: []string{"x-sum", "42", "x-other", "1"}, answer: chunked},
		"chunked answer":       {fields: request("GET", "/"), answer: chunked},
		"empty answer":         {fields: request("GET", "/"), answer: "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"},
		"not modified":         {fields: request("GET", "/"), answer: "HTTP/1.1 304 Not Modified\r\nETag: \"a\"\r\n\r\n"},
		"early hints":          {fields: request("GET", "/"), answer: "HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n" + fine},
		"answer to the end":    {fields: request("GET", "/"), answer: "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nall"},
		"cut answer":           {fields: request("GET", "/"), answer: "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 9\r\n\r\nall"},
		"answer of nonsense":   {fields: request("GET", "/"), answer: "nonsense Connection: close\r\n\r\n"},
		"fields of connection": {fields: request("GET", "/"), answer: "HTTP/1.1 200 OK\r\nKeep-Alive: timeout=1\r\nConnection: x-a\r\nX-A: 1\r\nX-B: 1\r\nAlt-Svc: h3\r\nSet-Cookie: a=1\r\nSet-Cookie: b=2\r\nContent-Length: 2\r\n\r\nok"},
		"no route":             {fields: []string{":method", "GET", ":scheme", "http", ":authority", "a", ":path", "/../../x%00"}, answer: fine},
	}
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(cases)) {
		c := cases[name]
		forwarded, answered := c.played(t)
		fmt.Fprintf(&b, "==== %s\n%s\n---- to the client\n%s\n", name, forwarded, answered)
	}
	const golden = "testdata/http2.golden"
	if *update {
		if err := os.WriteFile(golden, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want := filetest.Read(t, golden)
	wanted := strings.Split(string(want), "==== ")
	for i, got := range strings.Split(b.String(), "==== ") {
		if i >= len(wanted) || got != wanted[i] {
			t.Errorf("%s\nis not what %s has", got, golden)
		}
	}
}

// update writes golden files instead of comparing with them.
var update = flag.Bool("update", false, "write golden files")

// A request whose connection ends before its handler has begun leaves nothing: the part of its body
// that had arrived is not in the next request, which is another client's.
func TestHTTP2_NothingOfARequestThatDidNotBegin(t *testing.T) {
	url := startUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		fmt.Fprintf(w, "%s %s", r.Header.Get("Authorization"), body)
	})
	var attack bytes.Buffer
	fr := http2.NewFramer(&attack, nil)
	fr.AllowIllegalWrites = true
	fr.WriteSettings()
	fr.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: encode(request("POST", "/", "authorization", "attacker")...), EndHeaders: true})
	fr.WriteData(1, false, []byte("the body of the attacker"))
	fr.WriteData(0, false, []byte("x")) // an error of the connection
	overEachTransport(t, func(t *testing.T, over transport) {
		f := over.opened(t, forwardYAML(url, cleartext, ""))
		if f.client != nil {
			f.client.NextProtos = []string{"h2"}
		}
		for range 40 {
			attacker := f.dial(http2.ClientPreface + attack.String())
			_, _ = io.Copy(io.Discard, attacker)
			attacker.Conn.Close()

			other := f.speaks()
			other.begins(1, request("POST", "/", "authorization", "victim", "content-length", "6")...)
			other.WriteData(1, true, []byte("honest"))
			var got []byte
			other.hears("end of the response", func(fr http2.Frame) bool {
				if d, ok := fr.(*http2.DataFrame); ok {
					got = append(got, d.Data()...)
				}
				return fr.Header().StreamID == 1 && fr.Header().Flags.Has(http2.FlagDataEndStream)
			})
			if string(got) != "victim honest" {
				t.Errorf("the upstream got %q of the victim", got)
			}
		}
	})
}
