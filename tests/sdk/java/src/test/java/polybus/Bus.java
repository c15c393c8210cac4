package polybus;

import com.azure.core.amqp.AmqpRetryOptions;
import com.azure.core.http.HttpPipelineCallContext;
import com.azure.core.http.HttpPipelineNextPolicy;
import com.azure.core.http.HttpResponse;
import com.azure.core.http.policy.HttpPipelinePolicy;
import com.azure.core.util.UrlBuilder;
import com.azure.messaging.servicebus.ServiceBusClientBuilder;
import com.azure.messaging.servicebus.administration.ServiceBusAdministrationClient;
import com.azure.messaging.servicebus.administration.ServiceBusAdministrationClientBuilder;
import java.net.MalformedURLException;
import java.time.Duration;
import reactor.core.publisher.Mono;

/** Where the bus is, and clients of the unmodified SDK for it. */
final class Bus {
    static final String CONNECTION_STRING = System.getenv("POLYBUS_CONNECTION_STRING");
    static final String AMQP = System.getenv("POLYBUS_AMQP");
    static final String HTTP = System.getenv("POLYBUS_HTTP");
    static final String TLS = System.getenv("POLYBUS_TLS");
    static final String KEYS =
        "SharedAccessKeyName=RootManageSharedAccessKey;SharedAccessKey=SAS_KEY_VALUE";
    static final ServiceBusAdministrationClient ADMIN = administration(KEYS);

    private Bus() {
    }

    /** Refusals are final for these tests: what is retried would only be refused again, later. */
    static ServiceBusClientBuilder builder(String connectionString) {
        AmqpRetryOptions impatient = new AmqpRetryOptions().setMaxRetries(0).setTryTimeout(Duration.ofSeconds(10));
        return new ServiceBusClientBuilder().connectionString(connectionString).retryOptions(impatient);
    }

    static ServiceBusClientBuilder builder() {
        return builder(CONNECTION_STRING);
    }

    /** The SDK's administration client always goes to port 443, so a policy of its pipeline puts ours in. */
    static ServiceBusAdministrationClient administration(String keys) {
        return new ServiceBusAdministrationClientBuilder()
            .connectionString("Endpoint=sb://" + HTTP + ";" + keys)
            .addPolicy(new PortPolicy(port(HTTP)))
            .buildClient();
    }

    static int port(String address) {
        return Integer.parseInt(address.substring(address.lastIndexOf(':') + 1));
    }

    private record PortPolicy(int port) implements HttpPipelinePolicy {
        @Override
        public Mono<HttpResponse> process(HttpPipelineCallContext context, HttpPipelineNextPolicy next) {
            try {
                UrlBuilder url = UrlBuilder.parse(context.getHttpRequest().getUrl());
                context.getHttpRequest().setUrl(url.setPort(port).toUrl());
            } catch (MalformedURLException error) {
                return Mono.error(error);
            }
            return next.process();
        }
    }
}
