package upstream

import (
	"io"
	"net/http"
	"testing"
)

// What the operator sets or takes out, the client cannot say: not in another
// spelling, not behind the body, and not by Connection.
func TestRequest_SetRemoveAndHost(t *testing.T) {
	url := startBackend(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		for _, name := range []string{"X-Set", "X_set", "X-Gone", "X_gone", "User-Agent", "X-Kept"} {
			if r.Header[name] != nil {
				w.Header().Add("Seen", name+"="+r.Header.Get(name))
			}
		}
		for name := range r.Trailer {
			w.Header().Add("Seen", "trailer "+name)
		}
		w.Header().Set("X-Host", r.Host+" "+r.Header.Get("X-Forwarded-Host"))
	})
	h := startProxy(t, poolOf(t, url), func(asked *Request, _ received) {
		asked.Set = http.Header{"X-Set": {"ours"}, "X-Gone": {}, "User-Agent": {}}
		asked.SetHost = "inner.example"
	})
	res, _ := h.ask(t, "POST / HTTP/1.1\r\nHost: outer.example\r\nX-Set: theirs\r\nX_Set: theirs\r\nX-Gone: 1\r\nX_Gone: 1\r\nUser-Agent: x\r\nX-Kept: 1\r\n"+
		"Connection: X-Set\r\nTransfer-Encoding: chunked\r\nTrailer: X-Set, X-Gone, X-Sum\r\n\r\n0\r\nX-Set: late\r\nX-Gone: late\r\nX-Sum: 1\r\n\r\n")
	seen := res.Header["Seen"]
	if len(seen) != 3 || seen[0] != "X-Set=ours" || seen[1] != "X-Kept=1" || seen[2] != "trailer X-Sum" {
		t.Errorf("target sees %q", seen)
	}
	if got := res.Header.Get("X-Host"); got != "inner.example outer.example" {
		t.Errorf("target is asked for, and told of, %q", got)
	}
}
