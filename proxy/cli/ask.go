package cli

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/user"
	"strings"
	"time"

	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/proxy/node"
)

// askWithin is how long a running weir may take to answer: it may have to wait
// for others.
const askWithin = time.Minute

// maxAnswer is how long an answer may be, in bytes.
const maxAnswer = 64 << 20

// A running is a running weir, by its admin listener.
type running struct {
	Admin string `default:"127.0.0.1:9901" env:"WEIR_ADMIN" help:"Where the admin listener of a running weir is: HOST:PORT or a URL." placeholder:"HOST:PORT"`
	Token string `env:"WEIR_ADMIN_TOKEN" help:"Its token, if it asks for one."`
}

// ask sends v as JSON, or nothing if it is nil, and reads the answer into into. A
// refusal is printed to out, all that the answer says, and is errSaid.
func (a running) ask(ctx context.Context, out io.Writer, method, path string, v, into any) error {
	ctx, cancel := context.WithTimeout(ctx, askWithin)
	defer cancel()
	base := a.Admin
	if !strings.Contains(base, "://") {
		base = "http://" + node.Reachable(base)
	}
	body := []byte{}
	if v != nil {
		var err error
		if body, err = json.Marshal(v); err != nil {
			return fmt.Errorf("ask %s: %w", base, err)
		}
	}
	r, err := http.NewRequestWithContext(ctx, method, strings.TrimSuffix(base, "/")+path, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("ask %s: %w", base, err)
	}
	r.Header.Set("Content-Type", "application/json")
	if a.Token != "" {
		r.Header.Set("Authorization", "Bearer "+a.Token)
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return fmt.Errorf("ask a running weir: %w; name its admin listener with --admin", err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(io.LimitReader(answer.Body, maxAnswer))
	if err != nil {
		return fmt.Errorf("ask %s: %w", base, err)
	}
	if answer.StatusCode != http.StatusOK {
		return complain(out, answer.Status, text)
	}
	if err := json.Unmarshal(text, into); err != nil {
		return fmt.Errorf("ask %s: answer not understood: %w", base, err)
	}
	return nil
}

// complain prints why a weir refuses: every problem, or what each node says, or
// else the one sentence.
func complain(out io.Writer, status string, text []byte) error {
	var doc struct {
		Detail   string
		Problems []string
		Nodes    []struct{ Node, Said string }
	}
	if json.Unmarshal(text, &doc) != nil {
		return fmt.Errorf("a running weir answers %s; is this its admin listener?", status)
	}
	for _, p := range doc.Problems {
		fmt.Fprintln(out, p)
	}
	for _, n := range doc.Nodes {
		fmt.Fprintf(out, "%s: %s\n", n.Node, cmp.Or(n.Said, "no answer"))
	}
	if len(doc.Problems) > 0 {
		return errReported
	}
	if len(doc.Nodes) > 0 {
		doc.Detail = "not all nodes agree; nothing has changed"
	}
	return fmt.Errorf("%s", cmp.Or(doc.Detail, status))
}

// pack reads a file to be sent; its problems are printed to out, one a line.
func pack(path string, out io.Writer) (config.Bundle, error) {
	b, err := config.Pack(path)
	return b, printed(out, err)
}

// author is who somebody is that says no other name: the user and the machine.
func author(named string) string {
	if named != "" {
		return named
	}
	name := "somebody"
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	if host, err := os.Hostname(); err == nil {
		name += "@" + host
	}
	return name
}
