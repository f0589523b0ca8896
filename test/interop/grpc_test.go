package interop

import (
	"context"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/weir-proxy/weir/test/sockettest"
)

// chat is a method of a stream in both directions: it sends back what it gets.
func chat() *grpc.ServiceDesc {
	return &grpc.ServiceDesc{ServiceName: "test.Chat", HandlerType: (*any)(nil), Streams: []grpc.StreamDesc{{
		StreamName: "Talk", ServerStreams: true, ClientStreams: true,
		Handler: func(_ any, s grpc.ServerStream) error {
			s.SetTrailer(metadata.Pairs("x-sum", "42"))
			for {
				var word wrapperspb.StringValue
				if err := s.RecvMsg(&word); err != nil {
					return nil // the client has said all
				}
				if word.Value == "fail" {
					return status.Error(codes.ResourceExhausted, "no more: é%")
				}
				if err := s.SendMsg(&word); err != nil {
					return err
				}
			}
		},
	}}}
}

// dialHealth is a client of a gRPC server, through Weir.
func dialHealth(t *testing.T, limits string) (*grpc.ClientConn, *health.Server) {
	t.Helper()
	l := sockettest.Listen(t)
	s, state := grpc.NewServer(), health.NewServer()
	grpc_health_v1.RegisterHealthServer(s, state)
	s.RegisterService(chat(), nil)
	var served sync.WaitGroup
	served.Go(func() { s.Serve(l) })
	t.Cleanup(func() { s.Stop(); served.Wait() })

	addr := startPlain(t, "listen: {h2c: true}\nupstreams: {grpc: {targets: ['http://"+l.Addr().String()+"'], protocol: h2c}}\n"+
		"routes: [{match: {path: /*}, upstream: grpc"+limits+"}]\n")
	c, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c, state
}

func within(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), enough)
	t.Cleanup(cancel)
	return ctx
}

func TestGRPC_CallsAndTheirErrors(t *testing.T) {
	c, _ := dialHealth(t, "")
	client := grpc_health_v1.NewHealthClient(c)
	answer, err := client.Check(within(t), &grpc_health_v1.HealthCheckRequest{})
	if err != nil || answer.Status != grpc_health_v1.HealthCheckResponse_SERVING {
		t.Errorf("got %v, %v; want SERVING", answer, err)
	}
	if _, err := client.Check(within(t), &grpc_health_v1.HealthCheckRequest{Service: "none"}); status.Code(err) != codes.NotFound {
		t.Errorf("got %v; want NotFound", err)
	}
	if err := c.Invoke(within(t), "/test.None/Call", &wrapperspb.StringValue{}, &wrapperspb.StringValue{}); status.Code(err) != codes.Unimplemented {
		t.Errorf("got %v; want Unimplemented", err)
	}
}

func TestGRPC_ServerStream(t *testing.T) {
	c, state := dialHealth(t, "")
	watch, err := grpc_health_v1.NewHealthClient(c).Watch(within(t), &grpc_health_v1.HealthCheckRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []grpc_health_v1.HealthCheckResponse_ServingStatus{1, 2, 1, 2} {
		got, err := watch.Recv()
		if err != nil || got.Status != want {
			t.Fatalf("got %v, %v; want %v", got, err, want)
		}
		state.SetServingStatus("", 3-want)
	}
}

func TestGRPC_StreamInBothDirections(t *testing.T) {
	c, _ := dialHealth(t, "")
	s, err := c.NewStream(within(t), &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, "/test.Chat/Talk")
	if err != nil {
		t.Fatal(err)
	}
	for _, word := range []string{"one", "two", "three"} {
		var got wrapperspb.StringValue
		if err := s.SendMsg(wrapperspb.String(word)); err != nil {
			t.Fatal(err)
		}
		if err := s.RecvMsg(&got); err != nil || got.Value != word {
			t.Fatalf("got %q, %v; want %s", got.Value, err, word)
		}
	}
	if err := s.SendMsg(wrapperspb.String("fail")); err != nil {
		t.Fatal(err)
	}
	err = s.RecvMsg(new(wrapperspb.StringValue))
	if st := status.Convert(err); st.Code() != codes.ResourceExhausted || st.Message() != "no more: é%" {
		t.Errorf("got %v; want the server's words", err)
	}
	if got := s.Trailer().Get("x-sum"); len(got) != 1 || got[0] != "42" {
		t.Errorf("trailer %v; want x-sum", s.Trailer())
	}
}

func TestGRPC_ALimitIsAnError(t *testing.T) {
	c, _ := dialHealth(t, ", limits: [{key: global, rate: 1/1h}]")
	client := grpc_health_v1.NewHealthClient(c)
	if _, err := client.Check(within(t), &grpc_health_v1.HealthCheckRequest{}); err != nil {
		t.Fatal(err)
	}
	if _, err := client.Check(within(t), &grpc_health_v1.HealthCheckRequest{}); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("got %v; want ResourceExhausted", err)
	}
}
