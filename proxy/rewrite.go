package proxy

import (
	"strings"

	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/proxy/http1"
	routing "github.com/weir-proxy/weir/proxy/route"
)

// A rewrite changes forwarded requests and their responses. It is immutable.
type rewrite struct {
	*config.Rewrite
	set map[string][]string // request fields to set; a field without values is removed; nil if there are none
}

func newRewrite(c *config.Rewrite) rewrite {
	r := rewrite{Rewrite: c}
	if len(c.Request.Set)+len(c.Request.Remove) > 0 {
		r.set = map[string][]string{}
	}
	for name, value := range c.Request.Set {
		r.set[name] = []string{value}
	}
	for _, name := range c.Request.Remove {
		r.set[name] = []string{}
	}
	return r
}

// path returns the path of the forwarded request. A prefix is stripped only at the end of a
// segment. If the client wrote the prefix in another spelling, the path has that which was matched.
func (r *rewrite) path(t *routing.Target) string {
	if t.Path == "*" || r.StripPrefix == "" && r.AddPrefix == "" && t.Forwarded != "" {
		return t.Forwarded
	}
	path, ok := r.strip(t.Forwarded)
	if rest, has := r.strip(t.Path); has && !ok {
		path = rest
	}
	if path == "" && r.AddPrefix == "" {
		return "/"
	}
	return r.AddPrefix + path
}

// strip returns path without StripPrefix, if it has it.
func (r *rewrite) strip(path string) (rest string, ok bool) {
	rest, ok = strings.CutPrefix(path, r.StripPrefix)
	if !ok || rest != "" && rest[0] != '/' {
		return path, false
	}
	if rest != "" {
		rest = "/" + strings.TrimLeft(rest, "/")
	}
	return rest, true
}

// response changes the header of the upstream's response.
func (r *rewrite) response(h *http1.Fields) {
	if len(r.Response.Remove)+len(r.Response.Set) > 0 {
		r.editResponse(h)
	}
}

func (r *rewrite) editResponse(h *http1.Fields) {
	for _, name := range r.Response.Remove {
		h.Del(name)
	}
	for name, value := range r.Response.Set {
		h.Set(name, value)
	}
}
