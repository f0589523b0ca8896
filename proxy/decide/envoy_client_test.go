package decide

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"google.golang.org/grpc"

	"github.com/weir-proxy/weir/proxy/protobuf"
	"github.com/weir-proxy/weir/proxy/respond"
)

// bytesCodec passes messages through as they are.
type bytesCodec struct{}

func (bytesCodec) Name() string                       { return "proto" }
func (bytesCodec) Marshal(v any) ([]byte, error)      { return v.([]byte), nil }
func (bytesCodec) Unmarshal(data []byte, v any) error { *v.(*[]byte) = data; return nil }

// descriptor encodes a descriptor with entries NAME=VALUE.
func descriptor(entries ...string) []byte {
	var b []byte
	for _, e := range entries {
		name, value, _ := strings.Cut(e, "=")
		b = protobuf.AppendMessage(b, 1, protobuf.AppendText(protobuf.AppendText(nil, 1, name), 2, value))
	}
	return b
}

// negative makes the hits of a descriptor negative.
func negative(descriptor []byte) []byte { return protobuf.AppendNumber(descriptor, 4, 1) }

// hits sets the hits of a descriptor.
func hits(n uint64, descriptor []byte) []byte {
	return protobuf.AppendMessage(descriptor, 3, protobuf.AppendNumber(nil, 1, n))
}

// A said is what a RateLimitResponse says.
type said struct {
	code     code
	statuses []said
	limit    string // of a status: NAME COUNT/UNIT
	left     uint64
	toClient map[string]string
	upstream map[string]string
	body     string
	metadata string
}

// read decodes a response.
func (s *said) read(data []byte) error {
	s.toClient, s.upstream = map[string]string{}, map[string]string{}
	header := func(to map[string]string) func([]byte) error {
		return func(b []byte) error {
			var h respond.Field
			err := protobuf.Decode(b, protobuf.Fields{1: &h.Name, 2: &h.Value}, nil)
			to[h.Name] = h.Value
			return err
		}
	}
	return protobuf.Decode(data, protobuf.Fields{
		1: (*uint64)(&s.code),
		2: func(b []byte) error {
			var one said
			err := one.readStatus(b)
			s.statuses = append(s.statuses, one)
			return err
		},
		3: header(s.toClient),
		4: header(s.upstream),
		5: &s.body,
		6: &s.metadata,
	}, nil)
}

func (s *said) readStatus(data []byte) error {
	return protobuf.Decode(data, protobuf.Fields{
		1: (*uint64)(&s.code),
		2: func(b []byte) error {
			var name string
			var count, unit uint64
			err := protobuf.Decode(b, protobuf.Fields{1: &count, 2: &unit, 3: &name}, nil)
			s.limit = fmt.Sprintf("%s %d/%d", name, count, unit)
			return err
		},
		3: &s.left,
	}, nil)
}

// call asks about descriptors of the domain edge.
func (e *envoy) call(ctx context.Context, descriptors ...[]byte) (said, error) {
	b := protobuf.AppendText(nil, 1, "edge")
	for _, d := range descriptors {
		b = protobuf.AppendMessage(b, 2, d)
	}
	var answer []byte
	err := e.connection.Invoke(ctx, envoyMethod, b, &answer, grpc.ForceCodec(bytesCodec{}))
	var s said
	return s, errors.Join(err, s.read(answer))
}

// wants fails unless the answer about descriptors has this code, and returns it.
func (e *envoy) wants(want code, descriptors ...[]byte) said {
	e.Helper()
	s, err := e.call(e.Context(), descriptors...)
	if err != nil {
		e.Fatal(err)
	}
	if s.code != want {
		e.Errorf("code %d, want %d: %+v", s.code, want, s)
	}
	return s
}
