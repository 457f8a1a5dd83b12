package org.bertzoo.sample

import android.content.Context
import android.content.res.AssetManager
import com.google.ai.edge.litert.Accelerator
import com.google.ai.edge.litert.CompiledModel
import com.google.mediapipe.tasks.text.textclassifier.TextClassifier

/** Classifies texts on the phone; its functions block, so call them on a thread of their own. */
interface Classifier : AutoCloseable {
    /** Returns each label's probability, the largest first. */
    fun classify(text: String): List<Pair<String, Float>>
}

/** A file of `bertzoo convert --to=litert`: tokenises in Kotlin, runs the shortest signature that holds the text. */
class LiteRtClassifier(assets: AssetManager, file: String) : Classifier {
    private val info = ModelInfo(assets.text("$file.json"), assets.text("$file.files/vocab.txt"))
    private val model = CompiledModel.create(assets, file, CompiledModel.Options(Accelerator.CPU))

    override fun classify(text: String): List<Pair<String, Float>> {
        val row = info.row(text)
        val inputs = row.inputs.mapValues { (name, _) -> model.createInputBuffer(name, row.signature) }
        val logits = model.createOutputBuffer("logits", row.signature)
        try {
            for ((name, values) in row.inputs) inputs.getValue(name).writeInt(values)
            model.run(inputs, mapOf("logits" to logits), row.signature)
            return info.probabilities(logits.readFloat())
        } finally {
            for (buffer in inputs.values + logits) buffer.close()
        }
    }

    override fun close() = model.close()
}

/**
 * A file of `bertzoo convert --to=mediapipe`: MediaPipe tokenises, with the vocabulary and labels in the file.
 *
 * MediaPipe's tokenizer keeps accents and control characters, so this class removes them first. If the model keeps
 * accents (`strip_accents` in the JSON beside the file), set stripAccents = false.
 */
class MediaPipeClassifier(context: Context, file: String) : Classifier {
    private val task = TextClassifier.createFromFile(context, file)

    override fun classify(text: String): List<Pair<String, Float>> {
        val prepared = normalize(text, lowercase = true, stripAccents = true, splitChinese = true)
        return task.classify(prepared).classificationResult().classifications().first().categories()
            .map { it.categoryName() to it.score() }
            .sortedByDescending { it.second }
    }

    override fun close() = task.close()
}

private fun AssetManager.text(name: String) = open(name).bufferedReader().use { it.readText() }
