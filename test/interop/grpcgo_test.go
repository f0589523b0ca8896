//go:build programs

package interop

import (
	"net"
	"os/exec"
	"testing"
)

// What gRPC's own interop client asks of its own interop server is answered
// through Weir as without it, plain and in TLS.
func TestGRPC_InteropCases(t *testing.T) {
	addr := freeAddress(t)
	_, port, _ := net.SplitHostPort(addr)
	startServer(t, exec.Command(program(t, "grpc-server"), "-port", port), addr)
	d := startProxy(t, "listen: {h2c: true}\nupstreams: {grpc: {targets: ['http://"+addr+"'], protocol: h2c}}\n"+
		"routes: [{match: {path: /*}, upstream: grpc, limits: [{key: client_ip, rate: 100000/1s}]}]\n")
	for how, args := range map[string][]string{
		"plain": interopArgs(d.plain),
		"tls":   append(interopArgs(d.secure), "-use_tls", "-use_test_ca", "-ca_file", d.ca, "-server_host_override", "localhost"),
	} {
		for _, name := range []string{
			"empty_unary", "large_unary", "client_streaming", "server_streaming", "ping_pong", "empty_stream",
			"timeout_on_sleeping_server", "cancel_after_begin", "cancel_after_first_response",
			"status_code_and_message", "special_status_message", "custom_metadata",
			"unimplemented_method", "unimplemented_service", "rpc_soak", "channel_soak",
			"orca_per_rpc", "orca_oob",
		} {
			t.Run(how+"/"+name, func(t *testing.T) {
				more := []string{"-test_case", name, "-soak_per_iteration_max_acceptable_latency_ms", "20000", "-soak_overall_timeout_seconds", "20"}
				if name == "orca_per_rpc" || name == "orca_oob" {
					more = append(more, "-service_config_json", `{"loadBalancingConfig":[{"test_backend_metrics_load_balancer":{}}]}`)
				}
				mustRun(t, "grpc-client", append(more, args...)...)
			})
		}
	}
}

// interopArgs are the interop client's arguments for addr.
func interopArgs(addr string) []string {
	host, port, _ := net.SplitHostPort(addr)
	return []string{"-server_host", host, "-server_port", port}
}
