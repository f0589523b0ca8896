package test

import (
	"fmt"
	"go/ast"
	"slices"
	"strings"
	"testing"
)

// importMap says what each package may import of ours. A package that is not
// here is not on the map: to change the map, change it here first.
func importMap() map[string][]string {
	stages := []string{"proxy/http1", "proxy/http2", "proxy/config", "proxy/key", "proxy/upstream", "proxy/respond", "limiter"}
	redis := []string{"lock", "limiter/redisstore"}
	return map[string][]string{
		"":                                    {"proxy/cli"},
		"proxy/cli":                           {"proxy/view", "proxy/node", "proxy/admin", "proxy/config", "proxy/config/bundle", "proxy/convert", "proxy/ratelimit", "proxy/simulate", "proxy", "proxy/directive"},
		"proxy/node":                          {"proxy/view", "proxy/decide", "proxy/directive", "proxy/admin", "proxy/admin/dashboard", "proxy/cluster", "proxy/frontend", "proxy", "proxy/decisions", "proxy/sends", "proxy/acme", "proxy/config", "proxy/config/bundle", "proxy/simulate", "proxy/trace", "limiter", "limiter/redisstore"},
		"proxy/decide":                        {"proxy/internal/socket", "proxy", "proxy/limit", "proxy/config", "proxy/http1", "proxy/metrics", "proxy/protobuf", "proxy/respond", "proxy/route", "limiter"},
		"proxy/frontend":                      {"proxy/http1", "proxy/http2", "proxy/config", "limiter"},
		"proxy/acme":                          {"proxy/config"},
		"proxy/admin":                         {"proxy/view", "proxy", "proxy/directive", "proxy/sends", "proxy/config", "proxy/config/bundle", "limiter"},
		"proxy/admin/dashboard":               {"proxy/view", "proxy/admin", "proxy", "proxy/directive", "proxy/sends", "proxy/config", "limiter"},
		"proxy/cluster":                       slices.Concat([]string{"proxy/view", "proxy", "proxy/decisions", "proxy/directive", "proxy/sends", "proxy/config/bundle"}, stages, redis),
		"proxy/simulate":                      slices.Concat([]string{"proxy/view", "limiter/reuse", "proxy"}, stages),
		"proxy":                               slices.Concat([]string{"proxy/usage", "limiter/reuse", "proxy/view", "proxy/limit", "proxy/route", "proxy/trace", "proxy/metrics", "proxy/stripe", "proxy/body", "proxy/decisions", "proxy/directive", "proxy/protobuf", "proxy/sends"}, stages),
		"proxy/limit":                         {"proxy/usage", "limiter/reuse", "proxy/view", "proxy/config", "proxy/decisions", "proxy/key", "proxy/metrics", "proxy/sends", "proxy/stripe", "limiter"}, // no request, no HTTP
		"proxy/convert":                       {"proxy/config", "proxy/view", "limiter"},
		"proxy/ratelimit":                     {"proxy/config", "proxy/convert", "proxy/protobuf"},
		"proxy/protobuf":                      nil,
		"proxy/directive":                     nil,
		"proxy/view":                          {"proxy/directive", "limiter"},
		"proxy/metrics":                       {"proxy/stripe"},
		"proxy/stripe":                        nil,
		"proxy/body":                          {"limiter/reuse", "proxy/http1"},
		"proxy/decisions":                     {"proxy/view", "proxy/key", "proxy/stripe", "limiter"},
		"proxy/sends":                         {"limiter"},
		"proxy/trace":                         {"proxy/protobuf"},
		"proxy/route":                         {"limiter/reuse", "proxy/http1", "proxy/key"},
		"proxy/usage":                         nil,
		"proxy/config":                        {"proxy/usage", "proxy/view", "proxy/config/internal/form", "proxy/key", "limiter"},
		"proxy/config/bundle":                 {"proxy/config", "proxy/config/internal/form", "proxy/key"},
		"proxy/config/internal/form":          {"limiter"}, // for durations
		"proxy/key":                           {"limiter/reuse", "limiter"},
		"proxy/http1":                         {"limiter/reuse", "proxy/internal/socket", "proxy/stripe"},
		"proxy/internal/socket":               nil,
		"proxy/http2":                         {"limiter/reuse", "proxy/http1", "proxy/internal/socket"},
		"proxy/upstream":                      {"limiter/reuse", "proxy/view", "proxy/config", "limiter", "proxy/http1", "proxy/stripe"},
		"proxy/respond":                       {"limiter/reuse", "limiter"},
		"limiter":                             nil,
		"limiter/httplimit":                   {"limiter", "limiter/internal/rules", "proxy/respond"},
		"limiter/grpclimit":                   {"limiter", "limiter/internal/rules", "proxy/respond"},
		"limiter/internal/rules":              {"limiter"},
		"limiter/limitertest":                 {"limiter"},
		"limiter/redisstore":                  {"limiter/reuse", "limiter", "limiter/redisstore/internal/scripts", "limiter/redisstore/internal/wire"},
		"limiter/redisstore/internal/scripts": {"limiter"},
		"limiter/redisstore/lua":              {"limiter", "limiter/redisstore/internal/scripts"},
		"limiter/redisstore/internal/wire":    nil,
		"lock":                                nil,
		"test/redistest":                      {"test/await"},
		"test/await":                          nil,
		"test/logtest":                        nil,
		"test/pooltest":                       {"limiter/reuse"},
		"test/certtest":                       nil,
		"test/filetest":                       nil,
		"limiter/reuse":                       nil,
		"test/rounds":                         nil,
		"test/golden":                         {"proxy/view", "limiter", "proxy", "proxy/config", "proxy/decisions", "test/rounds", "test/weirtest"},
		"test/sockettest":                     {"test/await"},
		"test/weirtest":                       {"test/await", "test/filetest", "test/logtest", "proxy/config", "proxy/http1"},
		"test/playbooks":                      {"limiter", "proxy", "proxy/config", "test/weirtest"},
		"test/challenge":                      nil,
		"test/models":                         nil,
		"test/processgroup":                   nil,
		"test/report":                         {"test/processgroup"},
		"test/bench/lines":                    nil,
		"test/bench/proxies":                  {"test/processgroup"},
	}
}

// fences says which packages may import a module from outside. test/ stands
// outside of all fences.
func fences() map[string][]string {
	return map[string][]string{
		"github.com/redis/go-redis/":    {"limiter/redisstore", "limiter/redisstore/internal/wire", "lock", "proxy/cluster", "proxy/node"},
		"gopkg.in/yaml":                 {"proxy/config", "proxy/config/internal/form", "proxy/convert"}, // reads files of other programs
		"go.yaml.in/yaml":               {"proxy/config/internal/form"},
		"github.com/go-chi/chi/":        {"proxy/route", "proxy/admin", "proxy/admin/dashboard"},
		"golang.org/x/net/http2/h2c":    nil,
		"github.com/caddyserver/":       {"proxy/acme"},
		"go.uber.org/zap":               {"proxy/acme"},
		"go.uber.org/zap/":              {"proxy/acme"},
		"go.opentelemetry.io/":          {"proxy/trace"},
		"google.golang.org/grpc":        {"limiter/grpclimit", "proxy/decide", "proxy/ratelimit"},
		"google.golang.org/grpc/":       {"limiter/grpclimit", "proxy/decide", "proxy/ratelimit"},
		"math/rand":                     nil, // math/rand/v2 is another path
		"github.com/prometheus/common/": nil, // durations are limiter.ParseDuration's
		"testing":                       {"limiter/limitertest"},
	}
}

func TestImports_OursGoOneWay(t *testing.T) {
	allowed := importMap()
	for _, s := range sources(t) {
		if s.isTest() {
			continue
		}
		may, known := allowed[s.dir]
		if !known && !ignored(s) {
			t.Errorf("%s: package %q is not on the import map", s.path, s.dir)
		}
		for _, path := range s.imports() {
			ours, isOurs := strings.CutPrefix(path, module)
			if isOurs && !slices.Contains(may, strings.TrimPrefix(ours, "/")) {
				t.Errorf("%s imports %s, which %q may not", s.path, path, s.dir)
			}
		}
	}
}

func TestImports_FencesHold(t *testing.T) {
	for _, s := range sources(t) {
		if s.isTest() || strings.HasPrefix(s.dir, "test/") || ignored(s) {
			continue
		}
		for _, path := range s.imports() {
			for fence, inside := range fences() {
				if behind(path, fence) && !slices.Contains(inside, s.dir) {
					t.Errorf("%s imports %s, which is for %q only", s.path, path, inside)
				}
			}
		}
	}
}

func TestImports_LimiterAndLockNeverLog(t *testing.T) {
	for _, s := range sources(t) {
		if s.isTest() || !(strings.HasPrefix(s.dir, "limiter") || strings.HasPrefix(s.dir, "lock")) {
			continue
		}
		for _, path := range s.imports() {
			if path == "log" || path == "log/slog" || strings.HasPrefix(path, "github.com/rs/zerolog") {
				t.Errorf("%s imports %s; packages limiter and lock never log", s.path, path)
			}
		}
	}
}

// behind reports whether path is fence or lies under it.
func behind(path, fence string) bool {
	if strings.HasSuffix(fence, "/") || strings.Contains(fence, "/yaml") {
		return strings.HasPrefix(path, fence)
	}
	return path == fence
}

// ignored says that s is a tool run by go generate, no part of any package.
func ignored(s source) bool {
	for _, group := range s.file.Comments {
		for _, line := range group.List {
			if line.Text == "//go:build ignore" {
				return true
			}
		}
	}
	return false
}

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
