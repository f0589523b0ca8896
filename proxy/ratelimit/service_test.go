package ratelimit

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/rs/zerolog"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/weir-proxy/weir/proxy/protobuf"
	"github.com/weir-proxy/weir/test/await"
	"github.com/weir-proxy/weir/test/redistest"
)

// number encodes a field that is a number.
func number(field protowire.Number, n uint64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(nil, field, protowire.VarintType), n)
}

func message(field protowire.Number, parts ...[]byte) []byte {
	var all []byte
	for _, p := range parts {
		all = append(all, p...)
	}
	return protobuf.AppendMessage(nil, field, all)
}

func text(field protowire.Number, s string) []byte { return protobuf.AppendText(nil, field, s) }

// resource encodes a RateLimitConfig with a rule of unit and count.
func resource(domain, key string, unit, count uint64) []byte {
	policy := message(3, number(1, unit), number(2, count), text(4, "named"), message(5, text(1, "other")))
	rule := message(3, text(1, key), text(2, "$v"), message(4, text(1, "inner"), policy, number(5, 1), number(7, 1)))
	return append(text(1, typeURL), message(2, text(1, "name"), text(2, domain), rule)...)
}

func TestService_ConvertsResources(t *testing.T) {
	unknown := append(text(1, typeURL), message(2, text(2, "c"), number(4, 1), message(3, text(1, "k"), number(6, 1), number(8, 1), message(3, number(1, 1), number(2, 1), number(6, 1))))...)
	limits, differences, err := convertResources([][]byte{resource("a", "k", 7, 5), resource("b", "k", 1, 6), unknown})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"quota_mode refuses", "replaces is not carried over", "unknown_fields (6)"} {
		if !slices.ContainsFunc(differences, func(d string) bool { return strings.Contains(d, want) }) {
			t.Errorf("no %s in %q", want, differences)
		}
	}
	for _, want := range []string{"rate: 5/1w", "rate: 6/1s", "mode: shadow", `match: {domain: a, descriptor: {k: "$$v", inner: "*"}}`, "quota_mode", "replaces"} {
		if !strings.Contains(string(limits), want) {
			t.Errorf("no %s in\n%s", want, limits)
		}
	}
	for _, none := range [][][]byte{nil, {append(text(1, typeURL), message(2, text(2, "a"))...)}} {
		if limits, _, err := convertResources(none); err != nil || string(limits) != nothing {
			t.Errorf("%v, %s", err, limits)
		}
	}
	for want, r := range map[string][]byte{
		"not a configuration of limits": text(1, "type.googleapis.com/other"),
		"not a message":                 append(text(1, typeURL), message(2, []byte{0xff})...),
		`the unit "9" is none`:          resource("a", "k", 9, 1),
		`the unit "" is none`:           resource("a", "k", 0, 1),
		"there is no domain":            resource("", "k", 1, 1),
		"a descriptor has no key":       resource("a", "", 1, 1),
	} {
		if _, _, err := convertResources([][]byte{r}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %s", err, want)
		}
	}
}

// Limits that cannot be served leave those before.
func TestService_RefusedLimitsChangeNothing(t *testing.T) {
	settings, err := read(gateway)
	if err != nil {
		t.Fatal(err)
	}
	s := NewService(settings)
	reload := func(context.Context) error {
		_, err := s.Load()
		return err
	}
	if _, err := s.serve(t.Context(), [][]byte{resource("a", "k", 1, 5)}, reload); err != nil || !s.ready.Load() {
		t.Errorf("%v, ready %v", err, s.ready.Load())
	}
	before := string(s.text())
	broken := errors.New("broken")
	for _, r := range []struct {
		resource []byte
		reload   func(context.Context) error
	}{{resource("a", "k", 0, 5), reload}, {resource("b", "k", 1, 5), func(context.Context) error { return broken }}} {
		if _, err := s.serve(t.Context(), [][]byte{r.resource}, r.reload); err == nil || string(s.text()) != before {
			t.Errorf("error %v, and\n%s", err, s.text())
		}
	}
}

func TestHealth_FollowsReady(t *testing.T) {
	s := NewService(Settings{Health: "127.0.0.1:0"})
	stop, err := s.ServeHealth()
	if err != nil {
		t.Fatal(err)
	}
	stop()
	address := redistest.FreeAddr(t)
	s.settings.Health = address
	if stop, err = s.ServeHealth(); err != nil {
		t.Fatal(err)
	}
	defer stop()
	for _, ready := range []bool{false, true} {
		s.ready.Store(ready)
		r, err := http.Get("http://" + address + "/healthcheck")
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(r.Body)
		r.Body.Close()
		if ready != (r.StatusCode == 200) || ready != (string(body) == "OK") {
			t.Errorf("ready %v: %d %s", ready, r.StatusCode, body)
		}
	}
}

// raw is the codec of a server that sends and receives bytes.
type raw struct{}

func (raw) Marshal(v any) ([]byte, error) { return v.([]byte), nil }
func (raw) Unmarshal(data []byte, v any) error {
	*v.(*[]byte) = append([]byte(nil), data...)
	return nil
}
func (raw) Name() string { return "proto" }

// The client subscribes, acknowledges what is served, and says why it refuses; after a lost connection it
// subscribes again with the version that is served.
func TestClient_SubscribesAndAnswers(t *testing.T) {
	requests := make(chan []byte, 10)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	responses := [][]byte{
		append(append(text(1, "1"), message(2, text(1, "ours"))...), text(5, "first")...),
		append(text(1, "2"), append(message(2, text(1, "bad")), text(5, "second")...)...),
		{0xff},
	}
	s := grpc.NewServer(grpc.ForceServerCodec(raw{}), grpc.UnknownServiceHandler(func(_ any, stream grpc.ServerStream) error {
		for _, r := range append(responses, nil) {
			var request []byte
			if err := stream.RecvMsg(&request); err != nil {
				return err
			}
			requests <- request
			if r == nil {
				return errors.New("lost")
			}
			if err := stream.SendMsg(r); err != nil {
				return err
			}
		}
		return nil
	}))
	go s.Serve(l)
	defer s.Stop()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		c := &Client{Server: Server{Address: l.Addr().String(), Node: "me"}, Log: zerolog.Nop(), Serve: func(_ context.Context, resources [][]byte) error {
			if strings.Contains(string(resources[0]), "bad") {
				return errors.New("a wrong limit")
			}
			return nil
		}}
		c.Run(ctx)
	}()
	for i, want := range []discoveryRequest{
		{node: "me"}, {node: "me", version: "1", nonce: "first"}, {node: "me", version: "1", nonce: "second", fault: "a wrong limit"},
		{node: "me", version: "1", fault: protobuf.ErrMessage.Error()}, {node: "me", version: "1"},
	} {
		if got := await.Value(t, requests, "a request"); string(got) != string(want.marshal()) {
			t.Errorf("request %d: %q, want %q", i, got, want.marshal())
		}
	}
	cancel()
	await.Value(t, ended, "the end of the client")
}

func FuzzConvertResources(f *testing.F) {
	f.Add(resource("a", "k", 7, 5))
	f.Fuzz(func(t *testing.T, data []byte) {
		var r discoveryResponse
		r.unmarshal(data)
		if limits, _, err := convertResources(append(r.resources, data)); err == nil && !strings.Contains(string(limits), "routes:") {
			t.Errorf("%s", limits)
		}
	})
}
