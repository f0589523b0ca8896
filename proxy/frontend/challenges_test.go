package frontend

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/weir-proxy/weir/proxy/http1"
	"github.com/weir-proxy/weir/proxy/http2"
)

// namedHandler are what else is served: both protocols' handler, which says its name.
type namedHandler struct{}

func (namedHandler) ServeHTTP(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "routes") }

func (n namedHandler) ServeHTTP1(x *http1.Exchange) { x.ServeNetHTTP(&http1.Context{Exchange: x}, n) }

func (namedHandler) BodyBudget() http2.Budget { return nil }

func (namedHandler) Tunnels() *http1.Tunnels { return new(http1.Tunnels) }

func (namedHandler) BeginHTTP2(*http2.Stream) bool { return true }

func (namedHandler) ServeHTTP2(s *http2.Stream) {
	s.Start(http.StatusOK)
	_ = s.Send([]byte("routes"))
}

func (namedHandler) RefuseHTTP1(x *http1.Exchange, _ error) {
	x.Begin(http.StatusTeapot)
	_ = x.Send(nil)
}

// fixedChallenge answers for one token, as an authority asks for it.
type fixedChallenge string

func (f fixedChallenge) AnswerChallenge(r *http.Request) ([]byte, bool) {
	return []byte("proof"), r.URL.Path == challengePrefix+string(f)
}

// An alsoOfNetHTTP can be started like a handler of net/http, but serves by its own.
type alsoOfNetHTTP struct{ Handler }

func (alsoOfNetHTTP) ServeHTTP(http.ResponseWriter, *http.Request) { panic("not its own") }

func TestChallenges_AreAnsweredBeforeRoutes(t *testing.T) {
	f := startServer(t, "h2c: true", alsoOfNetHTTP{WithChallenges(namedHandler{}, fixedChallenge("token"))})
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	two := &http.Client{Transport: &http.Transport{Protocols: protocols}}
	defer two.CloseIdleConnections()
	for path, want := range map[string]string{challengePrefix + "token": "proof", challengePrefix + "other": "routes", "/": "routes"} {
		for proto, client := range map[string]*http.Client{"HTTP/1.1": http.DefaultClient, "HTTP/2.0": two} {
			answer, err := client.Get("http://" + f.addr + path)
			if err != nil {
				t.Fatal(err)
			}
			body, _ := io.ReadAll(answer.Body)
			answer.Body.Close()
			if string(body) != want || answer.Proto != proto {
				t.Errorf("%s over %s: %q over %s; want %q", path, proto, body, answer.Proto, want)
			}
		}
	}
	f.dial(strings.Replace(plainly, "Host: a", "Host: a\r\nHost: b", 1)).WantStatus(http.StatusTeapot)
}
