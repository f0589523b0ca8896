package test

import (
	"fmt"
	"go/ast"
	"slices"
	"strings"
	"testing"
)

// netHTTPAdapters are the files, and the folders with all that is in them, that may know
// requests, answers and headers as net/http has them. Everything else of a request's life
// goes by proxy/http1's Fields and proxy/upstream's Request and Sink, so that it serves
// HTTP/1.1 and HTTP/2 alike, on both sides.
func netHTTPAdapters() []string {
	return []string{
		"proxy/upstream/http2.go", "proxy/upstream/http2_body.go", // HTTP/2 goes out by its transport
		"proxy/frontend/server.go",
		"proxy/frontend/certificates.go", // handlers over HTTP/1.1 that were written for net/http
		"proxy/acme/acme.go",
		"proxy/admin/", "proxy/node/boot.go", "proxy/ratelimit/service.go", // what operators ask
		"proxy/key/jwks.go", "proxy/key/token.go", "proxy/cluster/alert.go", "proxy/trace/exporter.go", "proxy/cli/ask.go", // what Weir asks others
	}
}

// netHTTPTypes are the types of net/http that stay in its adapters.
func netHTTPTypes() []string {
	return []string{"Request", "ResponseWriter", "Header", "Response", "Handler", "HandlerFunc", "RoundTripper", "Transport", "Client", "Server"}
}

func TestImports_NetHTTPStaysInItsAdapters(t *testing.T) {
	unused := netHTTPAdapters()
	for _, s := range sources(t) {
		if s.isTest() || ignored(s) || !strings.HasPrefix(s.dir, "proxy") {
			continue
		}
		adapter := slices.IndexFunc(netHTTPAdapters(), func(a string) bool {
			return s.path == a || strings.HasSuffix(a, "/") && strings.HasPrefix(s.path, a)
		})
		for _, use := range netHTTPUses(s) {
			if adapter < 0 {
				t.Errorf("%s; only adapters know net/http's", use)
				continue
			}
			unused = slices.DeleteFunc(unused, func(a string) bool { return a == netHTTPAdapters()[adapter] })
		}
	}
	for _, a := range unused {
		t.Errorf("%s needs none of %q any more; take it off the list", a, netHTTPTypes())
	}
}

// netHTTPUses are the places of s where one of netHTTPTypes stands.
func netHTTPUses(s source) (uses []string) {
	if !slices.Contains(s.imports(), "net/http") {
		return nil
	}
	ast.Inspect(s.file, func(n ast.Node) bool {
		selector, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		if of, ok := selector.X.(*ast.Ident); ok && of.Name == "http" && slices.Contains(netHTTPTypes(), selector.Sel.Name) {
			uses = append(uses, fmt.Sprintf("%s:%d: http.%s", s.path, s.files.Position(n.Pos()).Line, selector.Sel.Name))
		}
		return true
	})
	return uses
}
