package dashboard

import (
	"cmp"
	"errors"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"github.com/weir-proxy/weir/proxy/view"
)

// An explainView is the data of the page that explains a request.
type explainView struct {
	Method string
	URL    string
	Header string // one field per line
	Body   string
	Client string
	Fault  fault
	// Decided is the decision about the request that is to be explained; nil if none is named.
	Decided *view.Decision
	// Explained is nil before the form was sent.
	Explained *view.Explanation
}

// showExplainForm shows the form, filled in from a decision if its method and URL are given: header and body
// of a request are not kept, its address only as a key.
func (d *dashboard) showExplainForm(r *http.Request) page {
	f := r.URL.Query()
	v := explainView{Method: cmp.Or(f.Get("method"), http.MethodGet), URL: f.Get("url")}
	if id := f.Get("request"); id != "" {
		said, err := d.Decisions(r.Context(), view.DecisionQuery{RequestID: id, N: 1})
		v.Fault = faultOf("the decision cannot be read", err)
		if len(said.Decisions) > 0 {
			v.Decided = &said.Decisions[0]
			v.Client = clientOf(v.Keys())
		}
	}
	return page{name: "explain", title: "Explain", data: v}
}

// Keys returns the keys of the request that was decided, each once.
func (v explainView) Keys() (keys []string) {
	for _, l := range v.Decided.Limits {
		if l.Masked != "" && !slices.Contains(keys, l.Masked) {
			keys = append(keys, l.Masked)
		}
	}
	return keys
}

// clientOf returns the address of the client, if a limit counted by it and it is shown in clear.
func clientOf(keys []string) string {
	for _, k := range keys {
		if addr, err := netip.ParseAddr(strings.TrimPrefix(k, "client_ip=")); err == nil {
			return addr.String()
		}
	}
	return ""
}

func (d *dashboard) explain(r *http.Request) page {
	f := r.PostForm
	v := explainView{
		Method: strings.TrimSpace(f.Get("method")), URL: strings.TrimSpace(f.Get("url")),
		Header: f.Get("header"), Body: f.Get("body"), Client: strings.TrimSpace(f.Get("client")),
	}
	request, err := v.request()
	if err == nil {
		var said view.Explanation
		if said, err = d.Explain(r.Context(), request); err == nil {
			v.Explained = &said
		}
	}
	v.Fault = faultOf("this cannot be explained", err)
	return page{name: "explain", title: "Explain", status: statusOf(err), data: v}
}

// request returns the request that the form describes.
func (v explainView) request() (view.ExplainRequest, error) {
	r := view.ExplainRequest{Method: v.Method, URL: v.URL, Body: v.Body, Header: map[string][]string{}}
	for _, line := range linesOf(v.Header) {
		name, value, found := strings.Cut(line, ":")
		if !found {
			return r, errors.New("each line of the header has a colon; write for example X-Phone: +8613800138000")
		}
		name = http.CanonicalHeaderKey(strings.TrimSpace(name))
		r.Header[name] = append(r.Header[name], strings.TrimSpace(value))
	}
	r.SetContentType()
	if v.Client != "" {
		addr, err := netip.ParseAddr(v.Client)
		if err != nil {
			return r, errors.New("the client's address is an IP address; write for example 203.0.113.7")
		}
		r.Client = addr
	}
	return r, nil
}
