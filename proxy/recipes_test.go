package proxy

import (
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/weir-proxy/weir/test/weirtest"
)

// recipes are the configurations below a heading of the reference.
func recipes(t *testing.T, heading string) []string {
	t.Helper()
	text, err := os.ReadFile("docs/listeners.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut(string(text), "\n## "+heading+"\n")
	if !found {
		t.Fatalf("the reference has no section %q", heading)
	}
	section, _, _ = strings.Cut(section, "\n## ")
	var all []string
	for _, part := range strings.Split(section, "```yaml\n")[1:] {
		block, _, _ := strings.Cut(part, "```")
		all = append(all, block)
	}
	return all
}

// Behind each proxy of the recipes two clients have two counts, whatever they send themselves, and whoever
// comes past the proxy is counted by its own address. check has nothing to say.
func TestRecipes_BehindProxies(t *testing.T) {
	all := recipes(t, "Behind Cloudflare, a load balancer of AWS, or nginx")
	if len(all) != 3 {
		t.Fatalf("%d recipes", len(all))
	}
	for i, c := range []struct{ name, peer, field string }{
		{"Cloudflare", "172.70.1.2:1", "CF-Connecting-IP"},
		{"an Application Load Balancer", "10.0.3.4:1", "X-Forwarded-For"},
		{"nginx", "127.0.0.1:1", "X-Forwarded-For"},
	} {
		p := newProxy(t, strings.Replace(all[i], "10/1s", "2/1h", 1))
		if _, served := p.Serving(); len(served.Warnings)+len(served.Notes()) > 0 {
			t.Errorf("%s: %v %v", c.name, served.Warnings, served.Notes())
		}
		from := func(peer, client string, want int) {
			t.Helper()
			r := httptest.NewRequest("GET", "http://a.example/a", nil)
			r.RemoteAddr = peer
			r.Header.Set(c.field, client)
			r.Header.Set("X-Forwarded-Proto", "https")
			if peer != c.peer && p.current.Load().config.Listen.RedirectHTTPS {
				want = 308 // a stranger's X-Forwarded-Proto counts for nothing
			}
			if got := weirtest.Exchange(p, r).Code; got != want {
				t.Errorf("%s: from %s for %s: %d; want %d", c.name, peer, client, got, want)
			}
		}
		for _, want := range []int{200, 200, 429} {
			from(c.peer, "198.51.100.7", want)
		}
		from(c.peer, "198.51.100.8", 200)
		if c.field == "X-Forwarded-For" {
			from(c.peer, "192.0.2.99, 198.51.100.7", 429) // the client has written the first
		}
		for n, want := range []int{200, 200, 429} {
			from("203.0.113.5:1", "192.0.2."+string(rune('1'+n)), want)
		}
	}
}
