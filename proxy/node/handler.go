package node

import (
	"context"
	"net/http"
	"strings"

	"github.com/weir-proxy/weir/proxy/acme"
	"github.com/weir-proxy/weir/proxy/http1"
)

// A clientHandler takes clients' requests.
type clientHandler struct{ *Node }

// ServeHTTP takes a client's request: an authority that asks whether a name is ours
// has its answer here, all others go by the routes.
func (h clientHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if h.issuer == nil || !h.issuer.Answer(w, r) {
		h.proxy.ServeHTTP(w, r)
	}
}

// ServeHTTP1 is ServeHTTP for HTTP/1.1.
func (h clientHandler) ServeHTTP1(x *http1.Exchange) {
	if h.issuer != nil && strings.HasPrefix(x.Path(), acme.Challenges) {
		x.ServeNet(context.Background(), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { h.issuer.Answer(w, r) }))
		if x.Begun() {
			return
		}
	}
	h.proxy.ServeHTTP1(x)
}

// RefuseHTTP1 answers what could not be read as a request.
func (h clientHandler) RefuseHTTP1(x *http1.Exchange, why error) { h.proxy.RefuseHTTP1(x, why) }
