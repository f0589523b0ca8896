import java.io.FileInputStream;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.security.KeyStore;
import java.security.cert.CertificateFactory;
import java.util.ArrayList;
import java.util.concurrent.CompletableFuture;
import javax.net.ssl.SSLContext;
import javax.net.ssl.TrustManagerFactory;

/** Asks a Weir over HTTP/2 with java.net.http; see http2_clients_test.go for what each answer must be. */
public class Client {
    static String base;
    static HttpClient client;

    public static void main(String[] args) throws Exception {
        base = args[0];
        client = HttpClient.newBuilder().version(HttpClient.Version.HTTP_2).sslContext(trusting(args[1])).build();
        int size = Integer.parseInt(args[2]);

        client.send(get("/free"), HttpResponse.BodyHandlers.ofString()); // the others share its connection
        var pending = new ArrayList<CompletableFuture<HttpResponse<String>>>();
        for (int i = 0; i < 100; i++) {
            pending.add(client.sendAsync(get("/free"), HttpResponse.BodyHandlers.ofString()));
        }
        int ok = 0;
        String version = "";
        for (var p : pending) {
            ok += p.get().statusCode() == 200 ? 1 : 0;
            version = p.get().version().toString();
        }
        say("{\"many\": \"%d %s\"", ok, version);
        var upload = post("/free", size);
        say(", \"upload\": \"%d %s\"", upload.statusCode(), number(upload.body(), "length"));
        var early = post("/limited", 60_000); // with more it waits for a window, although it has the answer
        say(", \"early\": \"%d %s\"", early.statusCode(), number(early.body(), "status"));
        var big = client.send(get("/big"), HttpResponse.BodyHandlers.ofByteArray());
        say(", \"download\": \"%d %d\"}\n", big.statusCode(), big.body().length);
    }

    static void say(String format, Object... args) {
        System.out.printf(format, args);
    }

    static HttpRequest get(String path) {
        return HttpRequest.newBuilder(URI.create(base + path)).build();
    }

    static HttpResponse<String> post(String path, int size) throws Exception {
        var body = HttpRequest.BodyPublishers.ofByteArray(new byte[size]);
        return client.send(HttpRequest.newBuilder(URI.create(base + path)).POST(body).build(), HttpResponse.BodyHandlers.ofString());
    }

    static String number(String json, String field) {
        var m = java.util.regex.Pattern.compile("\"" + field + "\": ?(\\d+)").matcher(json);
        return m.find() ? m.group(1) : json;
    }

    static SSLContext trusting(String path) throws Exception {
        var store = KeyStore.getInstance(KeyStore.getDefaultType());
        store.load(null, null);
        try (var in = new FileInputStream(path)) {
            store.setCertificateEntry("ca", CertificateFactory.getInstance("X.509").generateCertificate(in));
        }
        var trust = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
        trust.init(store);
        var context = SSLContext.getInstance("TLS");
        context.init(null, trust.getTrustManagers(), null);
        return context;
    }
}
