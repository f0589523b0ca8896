package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strings"

	"github.com/weir-proxy/weir/proxy"
	"github.com/weir-proxy/weir/proxy/config"
)

type explainCommand struct {
	tlsFlags
	Method string   `arg:"" complete:"GET,HEAD,POST,PUT,PATCH,DELETE,OPTIONS" help:"The method: GET, POST ...; or, without a URL, the id of a recent request, to show what was decided about it."`
	URL    string   `arg:"" optional:"" name:"url" help:"http://HOST/PATH, or /PATH."`
	Config string   `short:"c" help:"The configuration file; default: weir.yaml, then config.example.yaml." placeholder:"FILE" xor:"where"`
	Admin  string   `help:"Ask a running weir instead of reading a file: HOST:PORT or URL of its admin listener." placeholder:"HOST:PORT" xor:"where"`
	Token  string   `env:"WEIR_ADMIN_TOKEN" help:"Bearer token for the admin listener."`
	Header []string `short:"H" sep:"none" help:"A header field of the request; may be given several times." placeholder:"'NAME: VALUE'"`
	Data   *string  `short:"d" help:"The body of the request, or @FILE; @- is standard input." placeholder:"BODY"`
	Client string   `help:"The client's IP address." placeholder:"IP" default:"127.0.0.1"`
	JSON   bool     `name:"json" help:"Print JSON."`
}

// Run prints what would happen to a request: in a running weir, with its current
// counts, or by the file alone, with full quotas. With a request ID it prints what was
// decided about that request.
func (c explainCommand) Run(ctx context.Context, w Env) error {
	switch {
	case c.URL == "" && c.Config != "":
		return errors.New("a request id needs a running weir; leave out -c, or write METHOD URL")
	case c.URL == "":
		return c.decided(ctx, w)
	case c.Admin != "":
		return c.ask(ctx, w)
	}
	path, err := configPath(c.Config)
	if err != nil {
		return err
	}
	read, err := load(path, w.Stderr)
	if err != nil {
		return err
	}
	var methods []string
	for _, r := range read.Routes {
		methods = append(methods, r.Match.Methods...)
	}
	request, err := c.request(methods, w.stdin())
	if err != nil {
		return err
	}
	p, err := proxy.NewOffline(ctx, read)
	if err != nil {
		return err
	}
	defer p.Close()
	e, err := p.Explain(ctx, request)
	if err != nil {
		return withoutPrefix(err, proxy.ErrExplain)
	}
	if read.Privacy.HashSecret == "" { // the hashes would be made with a salt of this run alone
		for i := range e.Keys {
			e.Keys[i].Hash = ""
		}
	}
	return c.print(w, e)
}

func (c explainCommand) print(w Env, e proxy.Explanation) error {
	if c.JSON {
		return printJSON(w, e, nil)
	}
	explainText{Explanation: e, palette: newPalette(w.Stdout)}.print(w.Stdout)
	return nil
}

// request builds the request that the command line describes; methods are those
// that routes name.
func (c explainCommand) request(methods []string, stdin io.Reader) (proxy.ExplainRequest, error) {
	r := proxy.ExplainRequest{Method: c.Method, URL: c.URL, Header: map[string][]string{}}
	if err := checkMethod(c.Method, methods); err != nil {
		return r, err
	}
	for _, line := range c.Header {
		name, value, found := strings.Cut(line, ":")
		if !found || name == "" {
			return r, fmt.Errorf("header %q: write 'NAME: VALUE', for example -H 'X-Phone: +8613800138000'", line)
		}
		name = http.CanonicalHeaderKey(name)
		r.Header[name] = append(r.Header[name], strings.TrimSpace(value))
	}
	var err error
	if r.Client, err = netip.ParseAddr(c.Client); err != nil {
		return r, fmt.Errorf("client %q: not an IP address; write for example 203.0.113.7", c.Client)
	}
	if c.Data == nil {
		return r, nil
	}
	if slices.Contains([]string{http.MethodGet, http.MethodHead}, c.Method) {
		return r, fmt.Errorf("a %s with a body: servers read it differently; leave out -d, or write POST", c.Method)
	}
	if r.Body, err = body(*c.Data, stdin); err != nil {
		return r, err
	}
	r.SetContentType()
	return r, nil
}

// body returns the argument of -d, or the content of the file that it names.
func body(data string, stdin io.Reader) (string, error) {
	file, named := strings.CutPrefix(data, "@")
	if !named {
		return data, nil
	}
	if file == "-" {
		b, err := io.ReadAll(stdin)
		return string(b), err
	}
	b, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("read body: %w", err)
	}
	return string(b), nil
}

// checkMethod returns an error with a suggestion for an unknown method. Methods that
// routes name are known.
func checkMethod(method string, named []string) error {
	known := []string{
		http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions, http.MethodTrace, http.MethodConnect,
		"PROPFIND", "PROPPATCH", "MKCOL", "COPY", "MOVE", "LOCK", "UNLOCK", "REPORT", "SEARCH", "QUERY",
	}
	known = append(known, named...)
	if slices.Contains(known, method) {
		return nil
	}
	advice := "write for example GET or POST"
	if upper := strings.ToUpper(method); slices.Contains(known, upper) {
		advice = "methods are in capital letters: write " + upper
	} else if strings.ContainsAny(method, "/:") {
		advice = "the method comes first: weir explain METHOD URL"
	} else {
		advice = cmp.Or(config.Near(upper, known), advice)
	}
	return fmt.Errorf("method %q: not a known method; %s", method, advice)
}
