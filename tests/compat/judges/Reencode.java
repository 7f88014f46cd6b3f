import com.fasterxml.jackson.databind.JsonNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import org.apache.kafka.common.message.ApiMessageType;
import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.ObjectSerializationCache;

/**
 * Decodes messages with Kafka's own classes and encodes them again.
 *
 * <p>Reads lines KEY DIRECTION VERSION HEX; writes, separated by tabs, the bytes in hex, the message in Kafka's JSON, the
 * bytes of what Kafka makes of that JSON, and the version of the header.
 */
public final class Reencode {
    public static void main(String[] arguments) throws Exception {
        var lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] parts = line.split(" ", -1);
            var type = ApiMessageType.fromApiKey(Short.parseShort(parts[0]));
            boolean isRequest = parts[1].equals("REQUEST");
            short version = Short.parseShort(parts[2]);
            ApiMessage message = isRequest ? type.newRequest() : type.newResponse();
            var body = ByteBuffer.wrap(HexFormat.of().parseHex(parts[3]));
            message.read(new ByteBufferAccessor(body), version);
            if (body.hasRemaining()) throw new IllegalStateException("left over: " + line);
            Class<?> kind = message.getClass();
            Class<?> converter = Class.forName(kind.getName() + "JsonConverter");
            var json = (JsonNode) converter.getMethod("write", kind, short.class).invoke(null, message, version);
            var again = (ApiMessage) converter.getMethod("read", JsonNode.class, short.class).invoke(null, json, version);
            int header = isRequest ? type.requestHeaderVersion(version) : type.responseHeaderVersion(version);
            System.out.println(String.join("\t", hex(message, version), json.toString(), hex(again, version), "" + header));
        }
    }

    private static String hex(ApiMessage message, short version) {
        var cache = new ObjectSerializationCache();
        var bytes = ByteBuffer.allocate(message.size(cache, version));
        message.write(new ByteBufferAccessor(bytes), cache, version);
        return HexFormat.of().formatHex(bytes.array());
    }
}
